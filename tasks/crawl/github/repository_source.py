"""The base of a source whose documents lie in GitHub repositories; what was read of each is remembered."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator
from functools import cached_property
from pathlib import Path

import polars as pl

from storage.errors import SourceError, SourceUnavailable
from storage.partitions import partition_of
from storage.state import (
    ALIASES,
    LISTED,
    REPOSITORIES,
    aliases_table,
    listed_table,
    repositories_table,
)
from tasks.crawl.github.api import GitHub
from tasks.crawl.github.changes import ChangeReader, Remembered
from tasks.crawl.github.due import Unit
from tasks.crawl.github.fetch import Fetched, Fetcher
from tasks.crawl.github.retirement import Claims
from tasks.crawl.http.client import Http
from tasks.crawl.http.errors import HttpTerminal, HttpTransient
from tasks.crawl.http.secrets import GITHUB_TOKEN, credential
from tasks.crawl.http.stream import drain, in_order
from tasks.crawl.source.remote import RemoteSource, SourceOptions

_ARCHIVES = "state/crawl/archives"
_AHEAD = 8  # repositories under way at once; their archives lie on disk, not in memory
_PLACE = ["repository", "ref", "rest"]


class RepositorySource(RemoteSource):
    """Looks at repositories, several at a time, and remembers those whose documents are kept."""

    def __init__(self, spec: str, options: SourceOptions) -> None:
        super().__init__(spec, options)
        self._limits, self._token = options.limits, credential(GITHUB_TOKEN)
        self._etag_key = self._token.fingerprint() if self._token else "anonymous"
        claims = Claims(self._root, spec)
        self._changes = ChangeReader(spec, self._now, self._limits, self._etag_key, claims)
        self._unreached: list[Fetched] = []
        self._archives_in_use: Counter[Path] = Counter()
        self._archives = f"{_ARCHIVES}/{hashlib.sha256(spec.encode()).hexdigest()[:12]}"
        self._ended = False

    def _look_at(self, units: list[Unit]) -> Iterator[Fetched]:
        """Yield a look at each unit, with a client opened for them."""

        async def looks() -> AsyncGenerator[Fetched, None]:
            async with self._client(self._network.github_api_url) as http:
                async for look in self._looks(http, units):
                    yield look

        return drain(looks)

    async def _looks(self, http: Http, units: list[Unit]) -> AsyncGenerator[Fetched, None]:
        """Yield a look at each unit; one that failed for now is repeated once after all others."""
        net, folder = self._network, self._root.folder / self._archives
        urls = net.github_api_url, net.github_archive_url, net.github_raw_url
        github = GitHub(http, self._token, *urls, archive_bytes=net.archive_bytes)
        fetcher = Fetcher(github, self.spec, folder, self._limits, self._etag_key)
        self._archives_in_use = fetcher.in_use
        again: list[Unit] = []
        async for look in in_order(fetcher.look, units, _AHEAD):
            if isinstance(look.error, HttpTransient) and look.error.reason != "quota":
                again.append(look.unit)
            else:
                yield self._checked(look)
        fetcher.begin_again()
        async for look in in_order(fetcher.look, again, _AHEAD):
            yield self._checked(look)
        self._ended = True

    def _checked(self, look: Fetched) -> Fetched:
        if isinstance(look.error, HttpTerminal) and look.error.reason == "unauthorised":
            detail = f"GitHub refuses the token that {GITHUB_TOKEN} holds: correct it, or unset it"
            raise SourceError(self.spec, "unauthorised", detail) from look.error
        if isinstance(look.error, HttpTransient):
            self._unreached.append(look)
        return look

    def _require_reached(self) -> None:
        """Raise SourceUnavailable, with the reason of the first, if repositories could not be looked at."""
        if not self._unreached:
            return
        first = self._unreached[0].error
        detail = f"{len(self._unreached)} repositories could not be looked at, the first: {first}"
        raise SourceUnavailable(self.spec, first.reason if first else "network", detail)

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Forget the digests of these documents, wherever they are listed, and their commits.

        Their new text is on disk before `settled`. If the run dies in between and a repository goes back to
        what is remembered, it would be taken for unchanged, and the new text for its own.
        """
        ids = pl.DataFrame({"doc_id": list(doc_ids)}, schema={"doc_id": pl.String})
        led = self._led.join(ids, on="doc_id", how="semi")
        if led.is_empty():
            return
        partitions = {partition_of(repository) for repository in led["repository"]}
        for table, key, blank in (
            (listed_table(self._root), _PLACE, ("digest",)),
            (repositories_table(self._root), _PLACE[:2], ("commit", "etag")),
        ):
            rows = table.read(partitions).filter(source=self.spec).join(led, on=key, how="semi")
            table.upsert(rows.with_columns(pl.lit(None, pl.String).alias(name) for name in blank))

    @cached_property
    def _led(self) -> pl.DataFrame:
        """The places of documents when this was first asked: within a reading each is met once."""
        rows = listed_table(self._root).read(columns=["source", *_PLACE, "doc_id", "digest"])
        return rows.filter(pl.col("digest").is_not_null(), source=self.spec)

    def settled(self) -> None:
        """Remember what was yielded, and remove archives that are read."""
        kept, self._changes.remembered = self._changes.remembered, Remembered()
        listed_table(self._root).upsert(_frame(kept.listed, LISTED))
        if kept.renamed:
            rows = [
                {"doc_id": old, "survivor": new, "kind": "renamed", "since": self._now}
                for old, new in kept.renamed.items()
            ]
            aliases_table(self._root).replace(set(kept.renamed), pl.DataFrame(rows, schema=ALIASES))
        # Last: a repository that is remembered is not looked at again.
        repositories_table(self._root).upsert(_frame(kept.repositories, REPOSITORIES))
        for archive in kept.archives:
            self._archives_in_use[archive] -= 1
            if self._archives_in_use[archive] <= 0:  # else another ref of this commit is yet to be read
                archive.unlink(missing_ok=True)
        if self._ended:
            self._root.delete(self._archives)  # with what runs that died have left in it


def _frame(rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame({name: [r.get(name) for r in rows] for name in schema}, schema=schema)
