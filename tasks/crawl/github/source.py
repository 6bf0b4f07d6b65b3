"""Sources whose skills lie in GitHub repositories; `github:OWNER/REPO[@REF]` is every skill of one."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from storage.errors import SourceError, SourceUnavailable, WrongInput
from storage.partitions import partition_of
from storage.state import LISTED, REPOSITORIES, listed_table, rename, repositories_table
from tasks.crawl.github.api import GitHub
from tasks.crawl.github.changes import ChangeReader, PendingState
from tasks.crawl.github.fetch import Fetcher, FetchResult
from tasks.crawl.github.repositories import ListedRepository, ReferenceCounts, RepositoryIds
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.http.settings import GITHUB_TOKEN, credential
from tasks.crawl.source.base import CrawlContext, Gone, Item, RemoteSource, drain, in_order
from tasks.crawl.source.identity import GIT_REF
from tasks.crawl.source.unchanged import list_digest

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_ARCHIVES = "state/crawl/archives"
_AHEAD = 8  # repositories under way at once; their archives lie on disk, not in memory
_PLACE = ["repository", "ref", "rest"]
_NAME = re.compile(r"([A-Za-z0-9][\w-]{0,38}/(?!\.{1,2}(?:@|$))[\w.-]{1,100}?)(?:\.git)?(?:@(.+))?", re.ASCII)


class RepositorySource(RemoteSource):
    """Fetches repositories, several at a time, and remembers those whose documents are kept."""

    def __init__(self, spec: str, context: CrawlContext) -> None:
        super().__init__(spec, context)
        self._limits, self._token = context.limits, credential(GITHUB_TOKEN)
        self._etag_key = self._token.fingerprint() if self._token else "anonymous"
        references, self._ids = ReferenceCounts(self._root, spec), RepositoryIds(self._root)
        self._changes = ChangeReader(spec, self._now, self._limits, self._etag_key, references, self._ids)
        self._unreached: list[FetchResult] = []
        self._archives_in_use: Counter[Path] = Counter()
        self._archives = f"{_ARCHIVES}/{hashlib.sha256(spec.encode()).hexdigest()[:12]}"
        self._ended = False

    def _fetch_all(self, repositories: list[ListedRepository]) -> Iterator[FetchResult]:
        """Yield what is fetched of each repository, with a client opened for them."""

        async def results() -> AsyncGenerator[FetchResult, None]:
            async with self._client(self._settings.github_api_url) as http:
                async for result in self._fetched(http, repositories):
                    yield result

        return drain(results)

    async def _fetched(
        self, http: Http, repositories: list[ListedRepository]
    ) -> AsyncGenerator[FetchResult, None]:
        """Yield what is fetched of each repository; one that failed for now is repeated once after all."""
        github, folder = GitHub(http, self._token, self._settings), self._root.folder / self._archives
        limits, most = self._limits, self._settings.single_files
        fetcher = Fetcher(github, self.spec, folder, limits, self._etag_key, most, self._ids)
        self._archives_in_use = fetcher.in_use
        again: list[ListedRepository] = []
        async for result in in_order(fetcher.fetch, repositories, _AHEAD):
            if isinstance(result.error, HttpTransient) and result.error.reason != "quota":
                again.append(result.repository)
            else:
                yield self._checked(result)
        fetcher.begin_again()
        async for result in in_order(fetcher.fetch, again, _AHEAD):
            yield self._checked(result)
        self._ended = True

    def _checked(self, result: FetchResult) -> FetchResult:
        if isinstance(result.error, HttpTerminal) and result.error.reason == "unauthorised":
            detail = f"GitHub refuses the token that {GITHUB_TOKEN} holds: correct it, or unset it"
            raise SourceError(self.spec, "unauthorised", detail) from result.error
        if isinstance(result.error, HttpTransient):
            self._unreached.append(result)
        return result

    def _require_reached(self) -> None:
        """Raise SourceUnavailable, with the reason of the first, if repositories could not be looked at."""
        if not self._unreached:
            return
        first = self._unreached[0].error
        detail = f"{len(self._unreached)} repositories could not be looked at, the first: {first}"
        raise SourceUnavailable(self.spec, first.reason if first else "network", detail)

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget the digests of these documents, wherever they are listed, and their commits.

        Their new text is on disk before `checkpoint`. If the run dies in between and a repository goes
        back to what is remembered, it would be taken for unchanged, and the new text for its own.
        """
        ids = pl.DataFrame({"doc_id": list(doc_ids)}, schema={"doc_id": pl.String})
        places = self._places.join(ids, on="doc_id", how="semi")
        if places.is_empty():
            return
        partitions = {partition_of(repository) for repository in places["repository"]}
        for table, key, blank in (
            (listed_table(self._root), _PLACE, ("digest",)),
            (repositories_table(self._root), _PLACE[:2], ("commit", "etag")),
        ):
            rows = table.read(partitions).filter(source=self.spec).join(places, on=key, how="semi")
            table.upsert(rows.with_columns(pl.lit(None, pl.String).alias(name) for name in blank))

    @cached_property
    def _places(self) -> pl.DataFrame:
        """The places of documents at the first call: within a reading each is met once."""
        rows = listed_table(self._root).read(columns=["source", *_PLACE, "doc_id", "digest"])
        return rows.filter(pl.col("digest").is_not_null(), source=self.spec)

    def checkpoint(self) -> None:
        """Remember what was yielded, and remove archives that are read."""
        kept, self._changes.pending = self._changes.pending, PendingState()
        listed_table(self._root).upsert(_frame(kept.listed, LISTED))
        if kept.renamed:
            rename(self._root, kept.renamed, self._now)
        # Last: a repository that is remembered is not looked at again.
        repositories_table(self._root).upsert(_frame(kept.repositories, REPOSITORIES))
        for archive in kept.archives:
            self._archives_in_use[archive] -= 1
            if self._archives_in_use[archive] > 0:  # another ref of this commit is yet to be read
                continue
            if archive.is_dir():
                shutil.rmtree(archive, ignore_errors=True)
            else:
                archive.unlink(missing_ok=True)
        if self._ended:
            self._root.delete(self._archives)  # with what runs that died have left in it


def _frame(rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame({name: [r.get(name) for r in rows] for name in schema}, schema=schema)


def split_name(text: str) -> tuple[str, str]:
    """Return repository and ref (empty: the default branch) of `OWNER/REPO[@REF]`, or raise WrongInput."""
    match = _NAME.fullmatch(text)
    if match is None or (match[2] and not GIT_REF.fullmatch(match[2])):
        raise WrongInput(f"github:{text} is no repository: give github:OWNER/REPO or github:OWNER/REPO@REF")
    return match[1], match[2] or ""


def is_name(text: str) -> bool:
    """Tell whether a text has the form `OWNER/REPO[@REF]`."""
    with contextlib.suppress(WrongInput):
        return bool(split_name(text))
    return False


class GitHubSource(RepositorySource):
    """The skills of one repository, `OWNER/REPO[@REF]` (else WrongInput), in the order of their paths."""

    exhaustive, gives_listings = True, False

    def __init__(self, name: str, context: CrawlContext) -> None:
        self._name, self._ref = split_name(name)
        super().__init__(f"github:{name}", context)

    def read(self) -> Iterator[Item]:
        """Yield the repository's skills and the dropped entries; raises as `Source.read`."""
        for result in self._fetch_all([self._repository()]):
            found = 0
            for item in self._changes.items(result):
                found += not isinstance(item, Gone)
                if result.error is None or isinstance(item, Gone):
                    yield item
            if result.error is not None:
                raise self._error(result.error) from result.error
            if not found and not result.repository.listed:
                raise SourceError(self.spec, "no-skill", "there is no SKILL.md in this repository")

    def _repository(self) -> ListedRepository:
        key = self._name.lower()
        mine, place = {"source": self.spec, "repository": key, "ref": self._ref}, [partition_of(key)]
        listed = tuple(listed_table(self._root).read(place).filter(**mine).sort("rest").to_dicts())
        rows = repositories_table(self._root).read(place).filter(**mine).to_dicts()
        return ListedRepository(
            self.spec, self._name, self._ref, listed, rows[0] if rows else None, list_digest(()), whole=True
        )
