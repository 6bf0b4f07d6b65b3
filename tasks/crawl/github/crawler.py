"""The crawler of repositories: fetches several at a time, and remembers those whose documents are kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import polars as pl

from storage.errors import SourceError, SourceUnavailable
from storage.partitions import partition_of
from storage.root import Root
from storage.state import (
    ALIASES,
    LISTED,
    REPOSITORIES,
    aliases_table,
    listed_table,
    repositories_table,
    upsert,
)
from tasks.crawl.github.api import open_github
from tasks.crawl.github.changes import ChangeReader, Remembered
from tasks.crawl.github.due import Unit
from tasks.crawl.github.fetch import Fetched, Fetcher
from tasks.crawl.github.retirement import Claims
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.network import Network
from tasks.crawl.http.secrets import GITHUB_TOKEN, credential
from tasks.crawl.source.content import DocumentLimits

ARCHIVES = "state/crawl/archives"
_AHEAD = 8  # repositories under way at once; their archives lie on disk, not in memory
_PLACE = ["repository", "ref", "rest"]
A = TypeVar("A")
B = TypeVar("B")


async def in_order(
    work: Callable[[A], Awaitable[B]], items: Iterable[A], ahead: int
) -> AsyncGenerator[B, None]:
    """Yield `work` of each item in their order, up to `ahead` of them under way at once."""
    under_way: deque[asyncio.Future[B]] = deque()
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


class Repositories:
    """The repositories of one source.

    Args:
        spec: The spec of the source.
        root: Where state lies.
        network: The network as the operator set it.
        limits: What is taken of one document at most.
        now: When the reading began.
    """

    def __init__(
        self, spec: str, root: Root, network: Network, limits: DocumentLimits, now: datetime
    ) -> None:
        self.spec, self.root, self.network, self.now = spec, root, network, now
        self._limits, self._token = limits, credential(GITHUB_TOKEN)
        etag_key = self._token.fingerprint() if self._token else "anonymous"
        self.changes = ChangeReader(spec, now, limits, etag_key, Claims(root, spec))
        self._etag_key, self._unreached = etag_key, list[Fetched]()
        self._archives_in_use: Counter[Path] = Counter()
        self._archives = f"{ARCHIVES}/{hashlib.sha256(spec.encode()).hexdigest()[:12]}"
        self._ended = False

    async def looks(self, http: Http, units: list[Unit]) -> AsyncGenerator[Fetched, None]:
        """Yield a look at each unit; what failed for now is tried once more after all others.

        Raises:
            SourceError: GitHub refuses the token.
        """
        github = open_github(http, self._token, self.network)
        folder = self.root.folder / self._archives
        looker = Fetcher(github, self.spec, folder, self._limits, self._etag_key)
        self._archives_in_use = looker.in_use
        again: list[Unit] = []
        async for look in in_order(looker.look, units, _AHEAD):
            if isinstance(look.error, HttpTransient) and look.error.reason != "quota":
                again.append(look.unit)
            else:
                yield self._checked(look)
        looker.begin_again()
        async for look in in_order(looker.look, again, _AHEAD):
            yield self._checked(look)
        self._ended = True

    def _checked(self, look: Fetched) -> Fetched:
        if isinstance(look.error, HttpTerminal) and look.error.reason == "unauthorised":
            detail = f"GitHub refuses the token that {GITHUB_TOKEN} holds: correct it, or unset it"
            raise SourceError(self.spec, "unauthorised", detail) from look.error
        if isinstance(look.error, HttpTransient):
            self._unreached.append(look)
        return look

    def require_reached(self) -> None:
        """Say at the end of a reading what could not be looked at.

        Raises:
            SourceUnavailable: Some repositories; the reason is that of the first.
        """
        if not self._unreached:
            return
        first = self._unreached[0].error
        detail = f"{len(self._unreached)} repositories could not be looked at, the first: {first}"
        raise SourceUnavailable(self.spec, first.reason if first else "network", detail)

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget how these documents were at the last look, wherever they are listed, and their commits.

        Until `settled` nothing tells of the text that is about to be kept; a repository that has gone back to
        what is remembered would be taken for unchanged, and that text for its own.
        """
        ids = pl.DataFrame({"doc_id": list(doc_ids)}, schema={"doc_id": pl.String})
        led = self._led.join(ids, on="doc_id", how="semi")
        if led.is_empty():
            return
        partitions = {partition_of(repository) for repository in led["repository"]}
        for table, key, blank in (
            (listed_table(self.root), _PLACE, ("digest",)),
            (repositories_table(self.root), _PLACE[:2], ("commit", "etag")),
        ):
            rows = table.read(partitions).filter(pl.col("source") == self.spec).join(led, on=key, how="semi")
            upsert(table, rows.with_columns(pl.lit(None, pl.String).alias(name) for name in blank))

    @cached_property
    def _led(self) -> pl.DataFrame:
        """Where documents were listed when this was first asked: within a reading each is met once."""
        rows = listed_table(self.root).read(columns=["source", *_PLACE, "doc_id", "digest"])
        return rows.filter(pl.col("source") == self.spec, pl.col("digest").is_not_null())

    def settled(self) -> None:
        """Remember what was yielded, and remove archives that are read."""
        kept, self.changes.remembered = self.changes.remembered, Remembered()
        upsert(listed_table(self.root), _frame(kept.listed, LISTED))
        if kept.renamed:
            rows = [
                {"doc_id": old, "survivor": new, "kind": "renamed", "since": self.now}
                for old, new in kept.renamed.items()
            ]
            aliases_table(self.root).replace(set(kept.renamed), pl.DataFrame(rows, schema=ALIASES))
        # Last: a repository that is remembered is not looked at again.
        upsert(repositories_table(self.root), _frame(kept.repositories, REPOSITORIES))
        for archive in kept.archives:
            self._archives_in_use[archive] -= 1
            if self._archives_in_use[archive] <= 0:  # else another ref of this commit is yet to be read
                archive.unlink(missing_ok=True)
        if self._ended:
            self.root.delete(self._archives)  # with what runs that died have left in it


def _frame(rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame({name: [r.get(name) for r in rows] for name in schema}, schema=schema)
