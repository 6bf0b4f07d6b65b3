"""`mcp-registry`: the registry of MCP servers, read whole now and then and by its changes in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from storage.errors import SourceError, SourceUnavailable
from storage.root import Root
from storage.schemas import RawDocument
from storage.state import seen_table
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.network import Network
from tasks.crawl.http.stream import drain
from tasks.crawl.mcp.registry_rows import items_of
from tasks.crawl.source.protocol import Gone, Item, RequestUsage, Unchanged

FULL_DAYS = 30  # a whole reading finds what reports of changes left out
OVERLAP = timedelta(days=1)  # of two readings of changes: the registry's clock is not ours
_STATE = "state/crawl/mcp-registry.json"
_PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class _Progress:
    """What outlives a process; times are ISO 8601, and a reading is under way where `started` is one.

    Args:
        base: The registry's base URL; progress with another is none.
        started: When the reading under way began.
        since: What it asks for changes since; None: for everything.
        cursor: The page it goes on with; None: the first.
        last_full: When the last whole reading began that came to its end.
        last_complete: When the last reading of either kind began that came to its end.
    """

    base: str
    started: str | None = None
    since: str | None = None
    cursor: str | None = None
    last_full: str | None = None
    last_complete: str | None = None


class McpRegistrySource:
    """The registry's servers as documents of kind `mcp-server`, each in its latest version.

    Args:
        root: Where progress is kept, and what is known of the servers.
        reach: Where the registry is and how politely it is asked.
        clock: Gives the time, in UTC.
    """

    spec = "mcp-registry"
    gives_listings = True

    def __init__(
        self, root: Root, reach: Network, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._root, self._reach, self._clock = root, reach, clock
        self._base = reach.mcp_registry_url.rstrip("/")
        self._reached: _Progress | None = None
        self._usage = RequestUsage()
        self.exhaustive = False

    def version(self) -> None:
        """Return None: what the registry holds cannot be told without asking for it."""

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""
        return self._usage

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Do nothing: what is remembered is how far the registry was read, and what it takes back is news."""

    def settled(self) -> None:
        """Remember the pages that were yielded whole."""
        if self._reached is not None:
            self._root.write_json(_STATE, asdict(self._reached))

    def read(self) -> Iterator[Item]:
        """Yield listings and documents, and what the registry has deleted.

        The first reading, and one every 30 days, is of everything; others are of what changed since the last
        began, and say of the rest that it is unchanged. One that was broken off goes on with its next page.

        Raises:
            SourceError: The registry refuses, or what it answers is no list of servers.
            SourceUnavailable: It could not be looked at this time, or not to its end.
        """
        before = self._held()
        try:
            yield from drain(lambda: self._items(before))
        except GeneratorExit:
            # As much as was asked for has been read: the next reading begins where this one did.
            self._reached = before
            raise
        except HttpTerminal as error:
            raise SourceError(self.spec, error.reason, str(error)) from error
        except HttpTransient as error:
            raise SourceUnavailable(self.spec, error.reason, str(error)) from error

    async def _items(self, held: _Progress) -> AsyncGenerator[Item, None]:
        async with self._reach.open(self._root) as http:
            progress, (entries, following) = await self._begin(http, held)
            # What came before a break is not met again, so that nothing follows from its absence.
            self.exhaustive = progress.since is None and progress.cursor is None
            met: set[str] = set()
            while True:
                for item in (item for entry in entries for item in items_of(entry, self.spec)):
                    met.update(_about(item))
                    yield item
                if following is None:
                    break
                progress = self._reached = replace(progress, cursor=following)
                entries, following = await self._page(http, progress)
        if progress.since is not None:
            yield Unchanged(tuple(sorted(self._known() - met)))
        whole = progress.started if progress.since is None else progress.last_full
        self._reached = _Progress(self._base, last_full=whole, last_complete=progress.started)

    async def _begin(self, http: Http, held: _Progress) -> tuple[_Progress, tuple[list[Any], str | None]]:
        """Return the reading to go on with and its page; a new one where the registry refuses its cursor."""
        if held.started is not None:
            try:
                return held, await self._page(http, held)
            except HttpTerminal as error:
                if error.reason not in ("refused", "missing"):
                    raise
        progress = self._started(held)
        return progress, await self._page(http, progress)

    def _held(self) -> _Progress:
        held = _Progress(**(self._root.read_json(_STATE) or {"base": self._base}))
        return held if held.base == self._base else _Progress(self._base)

    def _started(self, held: _Progress) -> _Progress:
        """Return a reading that begins now: of everything where that is due, otherwise of what changed."""
        now = self._clock()
        full, last = (t and datetime.fromisoformat(t) for t in (held.last_full, held.last_complete))
        # A clock may have been set back: what lies after now says nothing of how long ago it was.
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
        self._usage = RequestUsage(http.requests, http.quota_left(self._base))
        body = answer.json()
        entries = body.get("servers") if isinstance(body, dict) else None
        if not isinstance(entries, list):
            raise HttpTerminal("shape", answer.url, "the answer holds no list of servers")
        metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
        following = metadata.get("nextCursor") or metadata.get("next_cursor") or None
        if following is not None and (not isinstance(following, str) or following == progress.cursor):
            raise HttpTerminal("shape", answer.url, f"{following!r} cannot be the cursor of a next page")
        return entries, following

    def _known(self) -> set[str]:
        seen = seen_table(self._root).read(columns=["doc_id", "source", "retired_at"])
        ours = seen.filter(pl.col("source") == self.spec, pl.col("retired_at").is_null())
        return set(ours["doc_id"])


def _about(item: Item) -> tuple[str, ...]:
    """Return the documents that an item says something of."""
    if isinstance(item, Gone):
        return item.doc_ids
    return (item.doc_id,) if isinstance(item, RawDocument) else ()
