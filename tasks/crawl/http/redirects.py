"""Redirects: the hosts that they may lead to, and the URLs that are usable at all."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from yarl import URL

from tasks.crawl.http.errors import HttpTerminal

REDIRECTS = frozenset({301, 302, 303, 307, 308})


def host_of(url: URL) -> str:
    """Return `host`, or `host:port` if the port is not the scheme's own, in lower case."""
    host = url.host_subcomponent or ""
    return host.lower() if url.is_default_port() else f"{host.lower()}:{url.port}"


def web_url(url: str) -> URL:
    """Return an absolute http or https URL without a fragment; one with credentials raises HttpTerminal."""
    try:
        found = URL(url).with_fragment(None)
        usable = found.scheme in {"http", "https"} and bool(found.host) and found.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise HttpTerminal("refused", url, "this is no http:// or https:// URL")
    if found.user is not None or found.password is not None:
        raise HttpTerminal("refused", url, "credentials in a URL are not sent: take them out")
    return found


def next_hop(url: URL, location: str, allowed: AbstractSet[str]) -> URL:
    """Return the target of a redirect from `url` to `location`, which may be relative.

    Raises:
        HttpTerminal: `redirect`: it leads to a host neither `allowed` nor that of `url`, from https to http,
            or nowhere.
    """
    try:
        target = web_url(str(url.join(URL(location))) if location else "")
    except (ValueError, HttpTerminal):
        raise HttpTerminal("redirect", url, f"{host_of(url)} redirects to what is no URL") from None
    if url.scheme == "https" and target.scheme == "http":
        detail = f"{host_of(url)} redirects from https to http at {host_of(target)}: not followed"
        raise HttpTerminal("redirect", url, detail)
    if host_of(target) != host_of(url) and host_of(target) not in allowed:
        detail = f"{host_of(url)} redirects to {host_of(target)}, which is not among the hosts it may lead to"
        raise HttpTerminal("redirect", url, detail)
    return target
