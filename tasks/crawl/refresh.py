"""Refreshes one skill, or one repository, from the sources that it came from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import polars as pl

from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import Listing
from storage.state import documents_table, listed_table, repositories_table, seen_table
from tasks.crawl.claims import Claims
from tasks.crawl.github.repositories import ListedRepository, listed_repositories
from tasks.crawl.github.source import RepositorySource
from tasks.crawl.seen import Covers
from tasks.crawl.source.base import CrawlContext, Gone, Item, Missed, RequestUsage, Source, Unchanged
from tasks.crawl.source.identity import doc_key
from tasks.crawl.source.lookup import meant, suggestion
from tasks.crawl.sources import open_source

_LISTS = "skillsmp"  # of its thousands of repositories one can be looked at alone


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a refresh: a document, or all documents below `owner/repo`, in any letter case."""

    name: str

    def covers(self, doc_id: str) -> bool:
        """Return whether a document belongs to the target."""
        return f"{doc_key(doc_id)}/".startswith(f"{doc_key(self.name)}/")

    @property
    def repository(self) -> str:
        """Its `owner/repo` in lower case, as tables of repositories spell it."""
        return "/".join(self.name.lower().removeprefix("github.com/").split("/")[:2])


def target_of(root: Root, text: str) -> Target:
    """Return the target that a text means: an id, OWNER/REPO, the end of an id, or a name (or WrongInput)."""
    seen = seen_table(root).read(columns=["doc_id", "retired_at"]).filter(pl.col("retired_at").is_null())
    target, ids = Target(text), set(seen["doc_id"])
    if any(map(target.covers, ids)):
        return target
    documents = documents_table(root).read(columns=["doc_id", "name"]).select("doc_id", "name")
    names = {
        **dict.fromkeys(ids),
        **{doc_id: name for doc_id, name in documents.iter_rows() if doc_id in ids},
    }
    if len(found := meant(text, names)) == 1:
        return Target(found[0])
    raise WrongInput(
        f"no source has brought {text!r}{suggestion(text, found, ids)}: give an id as `skillery search` "
        "prints it, or OWNER/REPO, or bring in what is new by `skillery run --source SPEC`"
    )


def sources_of(root: Root, target: Target) -> list[str]:
    """Return the sorted specs of the sources that hold a document of the target; none raises WrongInput."""
    seen = seen_table(root).read(columns=["doc_id", "source", "retired_at"])
    there = seen.filter(pl.col("retired_at").is_null())
    found = {source for doc_id, source, _ in there.iter_rows() if target.covers(doc_id)}
    if not found:
        raise WrongInput(f"no source has brought {target.name!r}: `skillery search` prints ids")
    return sorted(found)


def open_part(spec: str, target: Target, context: CrawlContext) -> tuple[Source, Covers]:
    """Return the part of a spec's source that a refresh of the target reads, and the ids that it covers.

    Of a repository on GitHub all documents are covered, since its commit is remembered afterwards.
    """
    if spec.startswith(_LISTS):
        return RepositoryRefresh(spec, target.repository, context), Target(target.repository).covers
    source = open_source(spec, context)
    if spec.startswith("github:"):
        return source, lambda _: True
    claims = Claims(context.root, spec, seen_table(context.root).read())
    return CoveredDocuments(source, lambda doc_id: target.covers(claims.own(doc_id))), target.covers


class CoveredDocuments(Source):
    """The covered documents of a source that is read to its end.

    The source makes no checkpoint: its next reading must not pass over the other documents.
    """

    def __init__(self, source: Source, covers: Covers) -> None:
        self._source, self._covers = source, covers
        self.spec, self.gives_listings = source.spec, source.gives_listings
        self.exhaustive = source.exhaustive

    def read(self) -> Iterator[Item]:
        """Yield the items on wanted documents; raises as the source's own `read` does."""
        yield from filter(None, map(self._part, self._source.read()))

    def _part(self, item: Item) -> Item | None:
        if isinstance(item, Unchanged | Missed | Gone):
            ids = tuple(doc_id for doc_id in item.doc_ids if self._covers(doc_id))
            return replace(item, doc_ids=ids) if ids else None
        return item if self._covers(item.source_id if isinstance(item, Listing) else item.doc_id) else None

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Let the source forget that these documents are unchanged."""
        self._source.invalidate(doc_ids)

    def usage(self) -> RequestUsage:
        """Return the requests that the source has sent so far."""
        return self._source.usage()


class RepositoryRefresh(RepositorySource):
    """One repository (`owner/repo` in lower case) of a marketplace's list, looked at now, due or not."""

    def __init__(self, spec: str, repository: str, context: CrawlContext) -> None:
        super().__init__(spec, context)
        self._repository = repository

    def read(self) -> Iterator[Item]:
        """Yield the repository's listed skills; raises as `SkillsMPSource.read`."""
        for result in self._fetch_all(self._repositories()):
            yield from self._changes.items(result)
        self._require_reached()

    def _repositories(self) -> list[ListedRepository]:
        """Return it at each listed ref; a list may still have the repository's former name."""
        tables = listed_table(self._root), repositories_table(self._root)
        listed, looked = (table.read().filter(source=self.spec) for table in tables)
        doc_id = pl.col("doc_id").str.to_lowercase() + "/"
        ours = (pl.col("repository") == self._repository) | doc_id.str.starts_with(f"{self._repository}/")
        mine = pl.col("repository").is_in(listed.filter(ours)["repository"].unique().implode())
        return listed_repositories(listed.filter(mine), looked.filter(mine))
