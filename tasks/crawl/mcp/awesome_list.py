"""`awesome:PATH-or-URL`: a curated list of MCP servers in Markdown."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Collection, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl

from storage.errors import SourceError, SourceUnavailable, WrongInput
from storage.root import Root
from storage.state import seen_table
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.network import Network
from tasks.crawl.http.stream import drain
from tasks.crawl.mcp.awesome_rows import servers_of
from tasks.crawl.source.identity import hide_credentials, public_url
from tasks.crawl.source.protocol import Item, RequestUsage, Unchanged

_RULES = 1  # raised when the same text yields other rows: an ETag of before does not count then
_LARGEST = 20_000_000
_RAW_HOST = "raw.githubusercontent.com"


class AwesomeListSource:
    """The servers of a list, each entry a document of kind `mcp-server`; whoever leaves the list is gone.

    Args:
        location: A local path, or an http(s) address of the Markdown itself.
        root: Where the ETag of what was read last is kept.
        reach: How politely the host is asked; an address of raw.githubusercontent.com is asked for where
            `github_raw_url` says.

    Raises:
        WrongInput: The address has another scheme.
    """

    exhaustive = True
    gives_listings = True

    def __init__(self, location: str, root: Root, reach: Network) -> None:
        self._remote = "://" in location
        if self._remote and urlsplit(location).scheme not in ("http", "https"):
            msg = f"awesome:{hide_credentials(location)}: give a path, or an address with http:// or https://"
            raise WrongInput(msg)
        self._location, self._root, self._reach = location, root, reach
        self.spec = f"awesome:{public_url(location) if self._remote else location}"
        self._usage = RequestUsage()
        self._reached: dict[str, object] | None = None
        name = hashlib.sha256(self.spec.encode()).hexdigest()[:16]
        self._state = f"state/crawl/awesome-{name}.json"

    def version(self) -> str | None:
        """Return the SHA-256 of a local file; None for an address, which an ETag is kept of instead.

        Raises:
            SourceError: As `read`.
        """
        return None if self._remote else hashlib.sha256(self._file()).hexdigest()

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""
        return self._usage

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget the list that was read before, whichever of its entries are about to change."""
        if doc_ids:
            self._root.delete(self._state)

    def settled(self) -> None:
        """Remember the list that was read to its end."""
        if self._reached is not None:
            self._root.write_json(self._state, self._reached)

    def read(self) -> Iterator[Item]:
        """Yield a listing and a document for each entry, in the list's order, and what is left out.

        Raises:
            SourceError: `missing` or `unreadable`: the file; `html`: a page for people instead of Markdown;
                `no-entries`: nothing in it has the form of an entry; otherwise the reason of the HTTP client.
            SourceUnavailable: The address could not be looked at this time.
        """
        if not self._remote:
            yield from self._rows(self._file())
            return
        try:
            yield from drain(self._fetched)
        except HttpTerminal as error:
            raise SourceError(self.spec, error.reason, str(error)) from error
        except HttpTransient as error:
            raise SourceUnavailable(self.spec, error.reason, str(error)) from error

    def _file(self) -> bytes:
        path = Path(self._location).expanduser()
        if not path.is_file():
            raise SourceError(self.spec, "missing", "there is no such file; check the path")
        try:
            return path.read_bytes()
        except OSError as error:
            raise SourceError(self.spec, "unreadable", error.strerror or str(error)) from error

    async def _fetched(self) -> AsyncGenerator[Item, None]:
        held = self._root.read_json(self._state) or {}
        etag = held.get("etag") if held.get("rules") == _RULES else None
        async with self._reach.open(self._root) as http:
            answer = await http.get(self._address(), etag=etag, max_bytes=_LARGEST)
            self._usage = RequestUsage(http.requests, http.quota_left(self._address()))
        if answer.status == 304:
            yield Unchanged(tuple(sorted(self._known())))
            return
        if answer.headers.get("content-type", "").startswith("text/html"):
            detail = "this is a page for people; give the address of the Markdown itself"
            raise SourceError(self.spec, "html", detail)
        for row in self._rows(answer.body):
            yield row
        self._reached = {"rules": _RULES, "etag": answer.headers.get("etag")}

    def _address(self) -> str:
        split = urlsplit(self._location)
        if split.hostname != _RAW_HOST:
            return self._location
        return f"{self._reach.github_raw_url.rstrip('/')}{split.path}"

    def _rows(self, body: bytes) -> Iterator[Item]:
        empty = True
        for row in servers_of(body.decode("utf-8-sig", "replace"), self.spec):
            empty = False
            yield row
        if empty:
            # An empty list would retire all that it held before.
            detail = "no list item in it begins with a link: this is no awesome list"
            raise SourceError(self.spec, "no-entries", detail)

    def _known(self) -> set[str]:
        seen = seen_table(self._root).read(columns=["doc_id", "source", "retired_at"])
        ours = seen.filter(pl.col("source") == self.spec, pl.col("retired_at").is_null())
        return set(ours["doc_id"])
