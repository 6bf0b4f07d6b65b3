"""A digested source: its list states the digest of each thing, and only what changed is fetched."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator

from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.source.base import CrawlContext, Item, RemoteSource, drain
from tasks.crawl.source.digests import Digests


class DigestedSource(RemoteSource):
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

    def _items(self) -> AsyncGenerator[Item, None]:
        raise NotImplementedError
