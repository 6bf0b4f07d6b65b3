"""The base of a source whose documents lie in repositories on GitHub, and are remembered by repository."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from datetime import datetime

from storage.root import Root
from tasks.crawl.github.crawler import Repositories
from tasks.crawl.github.due import Unit
from tasks.crawl.github.fetch import Look
from tasks.crawl.http.network import Reach
from tasks.crawl.source.content import DocumentLimits
from tasks.crawl.source.remote import RemoteSource


class RepositorySource(RemoteSource):
    """Looks at repositories and remembers what was yielded of them.

    Args:
        now: When the reading began.
    """

    def __init__(self, spec: str, root: Root, reach: Reach, limits: DocumentLimits, now: datetime) -> None:
        super().__init__(spec, root, reach)
        self._repositories = Repositories(spec, root, reach, limits, now)

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget the last look at these documents: a run that dies before `settled` has to look again."""
        self._repositories.unsettle(doc_ids)

    def settled(self) -> None:
        """Remember what was yielded."""
        self._repositories.settled()

    async def _looks(self, units: list[Unit]) -> AsyncGenerator[Look, None]:
        """Yield a look at each unit."""
        async with self._client(self._reach.github_api_url) as http:
            async for look in self._repositories.looks(http, units):
                yield look
