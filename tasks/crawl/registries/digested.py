"""A digested source: its list states the digest of each thing, and only what changed is fetched."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import TypeAlias

from storage.schemas import RawDocument
from tasks.crawl.github.archive import ArchiveRefused
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, QuotaExhausted
from tasks.crawl.source.base import CrawlContext, Item, Missed, RemoteSource, Unchanged, drain
from tasks.crawl.source.digests import Digests

# A thing's key, its digest where it is to be remembered, and its items.
Fetched: TypeAlias = tuple[str, str | None, list[Item]]


async def fetched(
    digests: Digests, key: str, digest: str | None, doc_id: str,
    fetch: Callable[[Path], Awaitable[list[Item]]],
) -> Fetched:  # fmt: skip
    """Return what `fetch` makes of a thing, given a folder, unless the digest is as before.

    If it cannot be had or verified, what is held of it is missed; without anything, `doc_id` is. The end of a
    quota is raised.
    """
    if digest and (ids := digests.same(key, digest)):
        return key, None, [Unchanged(ids)]
    try:
        with tempfile.TemporaryDirectory(prefix="skillery-artifact-") as folder:
            return key, digest, await fetch(Path(folder))
    except QuotaExhausted:
        raise
    except (HttpTerminal, HttpTransient, ArchiveRefused) as error:
        return key, None, [Missed(digests.ids(key) or (doc_id,), error.reason, str(error))]


async def taken(digests: Digests, results: AsyncIterable[Fetched]) -> AsyncGenerator[Item, None]:
    """Yield the items of what was fetched; when all are written, its ids and its digest are remembered."""
    async for key, digest, items in results:
        for item in items:
            yield item
        doc_ids = [item.doc_id for item in items if isinstance(item, RawDocument)]
        missed = [doc_id for item in items if isinstance(item, Missed) for doc_id in item.doc_ids]
        if doc_ids:
            digests.take(key, "" if missed else digest or "", [*doc_ids, *missed])


class DigestedSource(RemoteSource, ABC):
    """A source that remembers `Digests`; it implements `_items`, which may raise what requests raise."""

    exhaustive, gives_listings = True, False

    def __init__(self, spec: str, context: CrawlContext) -> None:
        super().__init__(spec, context)
        self._limits = context.limits
        self._digests = Digests(context.root, spec, context.limits)

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget the digests of these documents."""
        self._digests.invalidate(doc_ids)

    def checkpoint(self) -> None:
        """Remember the digests of what was yielded."""
        self._digests.write()

    def read(self) -> Iterator[Item]:
        """Yield what changed, and the ids of what did not.

        Raises:
            SourceError: It refuses, or its answer is not what was expected.
            SourceUnavailable: It could not be read this time, or not to its end.
        """
        try:
            yield from drain(self._items)
        except (HttpTerminal, HttpTransient) as error:
            raise self._error(error) from error

    @abstractmethod
    def _items(self) -> AsyncGenerator[Item, None]:
        """Yield what `read` yields."""
