"""Reads `awesome:PATH-or-URL`, an awesome list: MCP servers that people collected, in Markdown."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Collection, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from storage.errors import SourceError, WrongInput
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.stream import drain
from tasks.crawl.mcp.awesome_rows import servers_of
from tasks.crawl.source.identity import hide_credentials, public_url
from tasks.crawl.source.protocol import Item, Unchanged
from tasks.crawl.source.remote import RemoteSource, SourceOptions

_RULES = 1  # raised when the same text yields other rows: older ETags are then ignored
_LARGEST = 20_000_000  # bytes
_RAW_HOST = "raw.githubusercontent.com"


class AwesomeListSource(RemoteSource):
    """The servers of a list, each entry a document of kind `mcp-server`; one that leaves the list is gone.

    `location` is a local path, or an http(s) URL of the Markdown itself; another scheme raises WrongInput.
    """

    exhaustive = True

    def __init__(self, location: str, options: SourceOptions) -> None:
        self._remote = "://" in location
        if self._remote and urlsplit(location).scheme not in ("http", "https"):
            shown = hide_credentials(location)
            raise WrongInput(f"awesome:{shown}: give a path, or an address with http:// or https://")
        super().__init__(f"awesome:{public_url(location) if self._remote else location}", options)
        self._location = location
        self._reached: dict[str, object] | None = None  # the list that was read to its end
        name = hashlib.sha256(self.spec.encode()).hexdigest()[:16]
        self._state = f"state/crawl/awesome-{name}.json"

    def version(self) -> str | None:
        """Return the SHA-256 of a local file; None for a URL, of which an ETag is kept instead."""
        return None if self._remote else hashlib.sha256(self._file()).hexdigest()

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget the list that was read before if any of its documents is about to change."""
        if doc_ids:
            self._root.delete(self._state)

    def settled(self) -> None:
        """Remember the list that was read to its end."""
        if self._reached is not None:
            self._root.write_json(self._state, self._reached)

    def read(self) -> Iterator[Item]:
        """Yield a listing and a document for each entry, in the list's order, and the dropped entries.

        Raises:
            SourceError: `missing` or `unreadable`: the file; `html`: a web page instead of Markdown;
                `no-entries`: it contains no entry; otherwise the reason of the HTTP client.
            SourceUnavailable: The URL could not be read this time.
        """
        if not self._remote:
            yield from self._rows(self._file())
            return
        try:
            yield from drain(self._fetched)
        except (HttpTerminal, HttpTransient) as error:
            raise self._error(error) from error

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
        async with self._client(self._address()) as http:
            answer = await http.get(self._address(), etag=etag, max_bytes=_LARGEST)
        if answer.status == 304:
            yield Unchanged(tuple(sorted(self._present())))
            return
        if answer.headers.get("content-type", "").startswith("text/html"):
            detail = "this is a page for people; give the address of the Markdown itself"
            raise SourceError(self.spec, "html", detail)
        for row in self._rows(answer.body):
            yield row
        self._reached = {"rules": _RULES, "etag": answer.headers.get("etag")}

    def _address(self) -> str:
        """Return the URL to request: files on GitHub come from `github_raw_url`, which may be a mirror."""
        split = urlsplit(self._location)
        if split.hostname != _RAW_HOST:
            return self._location
        return f"{self._network.github_raw_url.rstrip('/')}{split.path}"

    def _rows(self, body: bytes) -> Iterator[Item]:
        row = None
        for row in servers_of(body.decode("utf-8-sig", "replace"), self.spec):
            yield row
        if row is None:
            # An empty list would retire every document of the last reading.
            detail = "no list item in it begins with a link: this is no awesome list"
            raise SourceError(self.spec, "no-entries", detail)
