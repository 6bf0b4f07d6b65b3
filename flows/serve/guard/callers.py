"""Callers: which Host, Origin and bearer token a request may come with."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::(\d{1,5}))?", re.IGNORECASE | re.ASCII)
_LEAST_TOKEN = 16
BASIC = 'Basic realm="Skillery: any name, and the token as password", charset="UTF-8"'


def is_loopback(host: str) -> bool:
    """Tell whether a server that listens at this host is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def usable_token(token: str) -> bool:
    """Tell whether a token is long enough, and plain enough for a header."""
    return len(token) >= _LEAST_TOKEN and token.isascii() and token.isprintable() and " " not in token


class Callers:
    """Judges by the headers who may ask.

    A page of a stranger can have a browser send requests to a name that then points to this machine (DNS
    rebinding). Such a request has the stranger's name in Host; an address there cannot come of it.

    Args:
        names: The names that this server answers to, beside localhost and addresses.
        token: What `Authorization` must hold, as `Bearer` or as the password of `Basic`; empty: nothing.
    """

    def __init__(self, names: Collection[str], token: str) -> None:
        self._names = {name.lower() for name in (*names, "localhost")}
        self._token = token.encode()

    def refuse(self, headers: Mapping[str, list[str]], *, open_to_all: bool) -> tuple[int, str] | None:
        """Return the status and message for a caller that is refused, None for one that may ask.

        `open_to_all` requests need no token.
        """
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_ours(host):
            return 421, "this Host is not served here: use localhost, an address, or set SKILLERY_SERVE_HOSTS"
        if origins and (
            len(origins) > 1 or origins[0].lower() not in {f"{s}://{host.lower()}" for s in _SCHEMES}
        ):
            return 403, "pages of another origin may not ask: leave out Origin, or use a program"
        if _is_cross_site(headers):
            return 403, "pages of another site may link here, and no more: open the address by itself"
        if self._token and not open_to_all and not self._is_known(headers.get("authorization", [])):
            return 401, "a token is needed: send Authorization: Bearer with SKILLERY_SERVE_TOKEN"
        return None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _is_known(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        held = token.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() == "basic":
            held = _password(held)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(held, self._token)


def _is_cross_site(headers: Mapping[str, list[str]]) -> bool:
    """Tell whether a browser says that another site's page asks, other than by a link that was followed."""
    site, mode, place = (headers.get(f"sec-fetch-{name}", [""])[0] for name in ("site", "mode", "dest"))
    return site not in {"", "same-origin", "none"} and (mode, place) != ("navigate", "document")


def _password(pair: bytes) -> bytes:
    """Return the password of a pair `name:password` in Base64, empty if it is none."""
    try:
        return base64.b64decode(pair, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


_SCHEMES = ("http", "https")
