"""The base of every source: what it is opened with, what it yields, and what it may override."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import polars as pl
from anyio.from_thread import start_blocking_portal

from storage.errors import SourceError, SourceUnavailable
from storage.root import Root
from storage.schemas import Dropped, Listing, RawDocument
from storage.state import seen_table
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, web_url
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.source.bundle import DocumentLimits

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Documents that were looked at and have not changed."""

    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """Documents that could not be looked at: they are kept, marked stale."""

    doc_ids: tuple[str, ...]
    reason: str  # a short stable code such as `missing`, `denied`, `too-large`, `timeout`
    detail: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Documents that are no longer to be served: removed by their owner, missed too often, or withdrawn."""

    doc_ids: tuple[str, ...]
    reason: Literal["retired", "withdrawn"]
    detail: str


Item: TypeAlias = RawDocument | Dropped | Listing | Unchanged | Missed | Gone


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Requests sent, retries included, and how many the day's quota still allows (None: no quota)."""

    requests: int = 0
    quota_left: int | None = None


class Source:
    """A place that skills come from; it is not touched before one of its methods is called.

    A source implements `spec` and `read`; one that can tell cheaply that nothing changed overrides `version`,
    and one that remembers what it has read overrides `checkpoint` and `invalidate`.
    """

    spec: str  # without credentials, as every row of this source carries it
    exhaustive = True  # a document that a complete reading does not yield is gone; else `Gone` items say so
    gives_listings = False  # it yields listings; if not, they are made from its documents

    def read(self) -> Iterator[Item]:
        """Yield items lazily, in the source's own stable order.

        Raises:
            SourceError: It cannot be read.
            SourceUnavailable: It could not be read this time; also at the end, if only a part could be.
        """
        raise NotImplementedError

    def version(self) -> str | None:
        """Return a digest of the source's present state, None if there is no cheap one; raises as `read`."""
        return None

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget that these documents are unchanged, since their text on disk is about to change.

        A run that dies before `checkpoint` leaves new text on disk, and the source may go back to the old.
        """

    def checkpoint(self) -> None:
        """Remember that everything yielded so far is on disk: a later reading may leave it out."""

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""
        return RequestUsage()


@dataclass(frozen=True, slots=True)
class CrawlContext:
    """What a source is opened with."""

    root: Root  # where state lies
    now: datetime  # when the reading begins
    limit: int | None = None  # how many documents are wanted; None: all
    settings: CrawlSettings = field(default_factory=CrawlSettings)

    @property
    def limits(self) -> DocumentLimits:
        """The most that is taken of one document."""
        given = self.settings
        return DocumentLimits(
            given.max_document_bytes,
            repository_paths=given.max_repository_paths,
            kept_files=given.keep_files,
            kept_bytes=given.keep_bytes,
        )


class RemoteSource(Source):
    """A source of listings and documents that is asked over HTTP."""

    exhaustive, gives_listings = False, True

    def __init__(self, spec: str, context: CrawlContext) -> None:
        self.spec, self._root, self._now = spec, context.root, context.now
        self._settings = context.settings
        self._usage = RequestUsage()

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""
        return self._usage

    @asynccontextmanager
    async def _client(self, url: str) -> AsyncGenerator[Http, None]:
        """Open a client; at its end record its requests and the quota left at `url`, the operator's setting.

        A request that fails raises an error of the source, and so does a `url` that none can be sent to.
        """
        from tasks.crawl.http.client import open_http  # noqa: PLC0415 (most sources ask no server)

        with self._as_source():
            web_url(url)
            async with open_http(self._settings, self._root, url) as http:
                try:
                    yield http
                finally:
                    self._usage = RequestUsage(self._usage.requests + http.requests, http.quota_left(url))

    @contextmanager
    def _as_source(self) -> Iterator[None]:
        """Turn the error of a request into one of the source."""
        try:
            yield
        except (HttpTerminal, HttpTransient) as error:
            raise self._error(error) from error

    def _error(self, error: HttpTerminal | HttpTransient) -> SourceError | SourceUnavailable:
        kind = SourceUnavailable if isinstance(error, HttpTransient) else SourceError
        return kind(self.spec, error.reason, str(error))

    def _present(self) -> set[str]:
        seen = seen_table(self._root).read(columns=["doc_id", "source", "retired_at"])
        return set(seen.filter(pl.col("retired_at").is_null(), source=self.spec)["doc_id"])


def drain(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Yield what `make()` yields; its event loop runs on between two items, and ends with the iterator.

    Every item is asked for in a task of its own, so the generator must not hold a task group or a time-out
    open across a `yield`. What it raises is raised here.
    """
    with start_blocking_portal() as portal:
        items = make()
        try:
            while True:
                try:
                    item = portal.call(anext, items)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            portal.call(items.aclose)


async def in_order(
    work: Callable[[A], Awaitable[T]], items: Iterable[A], ahead: int
) -> AsyncGenerator[T, None]:
    """Yield `work` of each item in their order, up to `ahead` of them under way at once."""
    under_way: deque[asyncio.Future[T]] = deque()
    try:
        for item in items:
            under_way.append(asyncio.ensure_future(work(item)))
            if len(under_way) >= ahead:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
