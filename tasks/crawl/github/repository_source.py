"""The base of a source whose documents lie in repositories on GitHub, and are remembered by repository."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection

from tasks.crawl.github.crawler import Repositories
from tasks.crawl.github.due import Unit
from tasks.crawl.github.fetch import Fetched
from tasks.crawl.source.remote import RemoteSource, SourceOptions


class RepositorySource(RemoteSource):
    """Looks at repositories and remembers what was yielded of them."""

    def __init__(self, spec: str, options: SourceOptions) -> None:
        super().__init__(spec, options)
        self._repositories = Repositories(spec, self._root, self._network, options.limits, self._now)

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget the last look at these documents: a run that dies before `settled` has to look again."""
        self._repositories.unsettle(doc_ids)

    def settled(self) -> None:
        """Remember what was yielded."""
        self._repositories.settled()

    async def _looks(self, units: list[Unit]) -> AsyncGenerator[Fetched, None]:
        """Yield a look at each unit."""
        async with self._client(self._network.github_api_url) as http:
            async for look in self._repositories.looks(http, units):
                yield look
