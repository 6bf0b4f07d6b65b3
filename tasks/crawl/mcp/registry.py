"""Reads the registry of MCP servers: completely every 30 days, and by its changes in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from storage.schemas import RawDocument
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.stream import drain
from tasks.crawl.mcp.registry_rows import items_of
from tasks.crawl.source.protocol import Gone, Item, Unchanged
from tasks.crawl.source.remote import RemoteSource, SourceOptions

FULL_DAYS = 30  # a complete reading finds what readings of changes missed
OVERLAP = timedelta(days=1)  # of two readings of changes: the registry's clock may differ from ours
_STATE = "state/crawl/mcp-registry.json"
_PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class _Progress:
    """The progress of reading, kept on disk; times are ISO 8601."""

    base: str  # the registry's base URL; progress with another URL does not count
    started: str | None = None  # when the reading under way began; None: there is none
    since: str | None = None  # it asks for changes after this time; None: for everything
    cursor: str | None = None  # of its next page; None: the first
    last_full: str | None = None  # when the last complete reading of everything began
    last_complete: str | None = None  # when the last complete reading, of everything or changes, began


class McpRegistrySource(RemoteSource):
    """The registry's servers as documents of kind `mcp-server`, each in its latest version."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__("mcp-registry", options)
        self._base = self._network.mcp_registry_url.rstrip("/")
        self._reached: _Progress | None = None

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Do nothing: only the progress is remembered, and a server that is changed back is a change too."""

    def settled(self) -> None:
        """Remember the pages that were yielded to their end."""
        if self._reached is not None:
            self._root.write_json(_STATE, asdict(self._reached))

    def read(self) -> Iterator[Item]:
        """Yield listings and documents, and the servers that the registry has deleted.

        A reading is complete at first and every 30 days; others ask for changes since the last began, and
        yield all other servers as unchanged. A reading that broke off goes on with its next page.

        Raises:
            SourceError: The registry refuses, or its answer is no list of servers.
            SourceUnavailable: It could not be read this time, or not to its end.
        """
        before = _Progress(**(self._root.read_json(_STATE) or {"base": self._base}))
        if before.base != self._base:
            before = _Progress(self._base)
        try:
            yield from drain(lambda: self._items(before))
        except GeneratorExit:
            # The caller wanted no more: the next reading begins where this one did.
            self._reached = before
            raise
        except (HttpTerminal, HttpTransient) as error:
            raise self._error(error) from error

    async def _items(self, held: _Progress) -> AsyncGenerator[Item, None]:
        async with self._client(self._base) as http:
            progress, (entries, following) = await self._begin(http, held)
            # The pages before a break are not read again: a server absent from the rest is not deleted.
            self.exhaustive = progress.since is None and progress.cursor is None
            met: set[str] = set()
            while True:
                for item in chain.from_iterable(items_of(entry, self.spec) for entry in entries):
                    if isinstance(item, Gone | RawDocument):
                        met.update(item.doc_ids if isinstance(item, Gone) else [item.doc_id])
                    yield item
                if following is None:
                    break
                progress = self._reached = replace(progress, cursor=following)
                entries, following = await self._page(http, progress)
        if progress.since is not None:
            yield Unchanged(tuple(sorted(self._present() - met)))
        whole = progress.started if progress.since is None else progress.last_full
        self._reached = _Progress(self._base, last_full=whole, last_complete=progress.started)

    async def _begin(self, http: Http, held: _Progress) -> tuple[_Progress, tuple[list[Any], str | None]]:
        """Return the reading to go on with and its page; a new reading if its cursor is refused."""
        if held.started is not None:
            try:
                return held, await self._page(http, held)
            except HttpTerminal as error:
                if error.reason not in ("refused", "missing"):
                    raise
        progress = self._started(held)
        return progress, await self._page(http, progress)

    def _started(self, held: _Progress) -> _Progress:
        """Return a reading that begins now: of everything if that is due, otherwise of the changes."""
        now = self._now
        full, last = (t and datetime.fromisoformat(t) for t in (held.last_full, held.last_complete))
        # After a clock was set back, a time may lie after now: then everything is read.
        due = not full or not timedelta() <= now - full < timedelta(FULL_DAYS) or bool(last and last > now)
        since = (last - OVERLAP).isoformat() if last and not due else None
        return replace(held, started=now.isoformat(), since=since, cursor=None)

    async def _page(self, http: Http, progress: _Progress) -> tuple[list[Any], str | None]:
        """Return the entries of a page and the cursor of the next, None after the last."""
        params = {"limit": str(_PAGE_ROWS), "version": "latest"}
        if progress.since is not None:
            params["updated_since"] = progress.since.replace("+00:00", "Z")
        if progress.cursor is not None:
            params["cursor"] = progress.cursor
        answer = await http.get(f"{self._base}/v0.1/servers", params=params)
        body = answer.json()
        entries = body.get("servers") if isinstance(body, dict) else None
        if not isinstance(entries, list):
            raise HttpTerminal("shape", answer.url, "the answer holds no list of servers")
        metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
        following = metadata.get("nextCursor") or metadata.get("next_cursor") or None
        if following is not None and (not isinstance(following, str) or following == progress.cursor):
            raise HttpTerminal("shape", answer.url, f"{following!r} cannot be the cursor of a next page")
        return entries, following
