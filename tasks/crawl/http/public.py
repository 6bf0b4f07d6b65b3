"""Public hosts only: what was crawled may name any URL, and must not lead into the operator's own network."""

from __future__ import annotations

import socket
from ipaddress import IPv6Address, ip_address

from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from tasks.crawl.http.responses import HttpTerminal, HttpTransient, host_of


def require_public(url: URL) -> None:
    """Raise HttpTerminal `private` if a URL's host is a private address; a name is left to `PublicOnly`."""
    host = url.host or ""
    try:
        # Written as one number, or in octal, an address is one too: `inet_aton` knows all the forms.
        address = host if ":" in host else socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return
    if not is_public(address):
        raise HttpTerminal(
            "private", url, "the address is private, and only the operator may name such a one"
        )


def check_host(url: URL, own: str) -> None:
    """Look up the host of a URL that another program will ask, unless it is the operator's `own`.

    HttpTerminal `private`: it, or an address of it, is private; HttpTransient `connection`: it has none.
    """
    if host_of(url) == own:
        return
    require_public(url)
    try:
        found = socket.getaddrinfo(url.host, url.port)
    except OSError as error:
        raise HttpTransient("connection", url, f"the host has no address ({error})") from error
    for address in found:
        require_public(URL.build(scheme="http", host=str(address[4][0])))


def is_public(address: str) -> bool:
    """Tell whether an IP address is one of the public internet; any other text raises ValueError."""
    found = ip_address(address.partition("%")[0])
    return ((found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found).is_global


class PublicOnly(ThreadedResolver):
    """Resolves names; the `guarded` ones to public addresses only, whatever they resolved to before."""

    def __init__(self) -> None:
        super().__init__()
        self.guarded: set[tuple[str, int | None]] = set()  # with their ports

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raise HttpTerminal `private`."""
        found = await super().resolve(host, port, family)
        if (host, port) in self.guarded:
            for address in found:
                require_public(URL.build(scheme="http", host=address["host"]))
        return found
