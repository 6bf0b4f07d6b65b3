"""Refresh of one skill or one repository from the sources that it came from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from dataclasses import dataclass, replace

import polars as pl

from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import Dropped, Listing, RawDocument
from storage.state import listed_table, repositories_table, seen_table
from tasks.crawl.github.crawler import Repositories
from tasks.crawl.github.due import Unit, units_of
from tasks.crawl.github.fetch import Fetched
from tasks.crawl.http.stream import drain
from tasks.crawl.source.identity import doc_key
from tasks.crawl.source.protocol import Gone, Item, Missed, RequestUsage, Source, Unchanged
from tasks.crawl.sources import Opening, open_source

_LISTS = "skillsmp"  # such a source names repositories by the thousand; one of them can be looked at alone


@dataclass(frozen=True, slots=True)
class Target:
    """What is looked at again: a document, or all that lies below `owner/repo`; in any letter case."""

    name: str

    def covers(self, doc_id: str) -> bool:
        """Tell whether a document is meant."""
        return f"{doc_key(doc_id)}/".startswith(f"{doc_key(self.name)}/")

    @property
    def repository(self) -> str:
        """Its `owner/repo`, in small letters, as lists of repositories are kept by."""
        return "/".join(self.name.lower().split("/")[:2])


def sources_of(root: Root, target: Target) -> list[str]:
    """Return the specs of the sources that a document or repository was met in and has not left, sorted.

    Raises:
        WrongInput: It was met in none.
    """
    seen = seen_table(root).read(columns=["doc_id", "source", "retired_at"])
    there = seen.filter(pl.col("retired_at").is_null())
    found = {
        source for doc_id, source in there.select("doc_id", "source").iter_rows() if target.covers(doc_id)
    }
    if not found:
        msg = (
            f"no source has brought {target.name!r}: give an id as `skillery search` prints it, or "
            "OWNER/REPO, or bring in what is new by `skillery run --source SPEC`"
        )
        raise WrongInput(msg)
    return sorted(found)


def wanted_of(spec: str, target: Target) -> Callable[[str], bool]:
    """Return which ids a refresh of a target takes from a source: where it is looked at by repository, all.

    What a repository's look brings is remembered with the commit it was at; none of it may be left out.
    """
    if spec.startswith("github:"):
        return lambda _: True
    return Target(target.repository).covers if spec.startswith(_LISTS) else target.covers


def open_part(spec: str, target: Target, opening: Opening) -> Source:
    """Return a source that yields what a refresh of the target takes of the source a spec names.

    Raises:
        WrongInput: The spec has none of the known forms.
    """
    if spec.startswith(_LISTS):
        return ListedRepository(spec, target.repository, opening)
    source = open_source(spec, opening)
    return source if spec.startswith("github:") else PartOf(source, target.covers)


class PartOf:
    """The documents of a source that are wanted; the source is not told that they were kept.

    Args:
        source: A source that is read whole.
        covers: Which ids are wanted.
    """

    def __init__(self, source: Source, covers: Callable[[str], bool]) -> None:
        self._source, self._covers = source, covers
        self.spec, self.exhaustive, self.gives_listings = (
            source.spec,
            source.exhaustive,
            source.gives_listings,
        )

    def version(self) -> None:
        """Return None: a part is always read."""

    def read(self) -> Iterator[Item]:
        """Yield what concerns the documents that are wanted; raises as the source's own does."""
        for item in self._source.read():
            part = self._part(item)
            if part is not None:
                yield part

    def _part(self, item: Item) -> Item | None:
        if isinstance(item, Unchanged | Missed | Gone):
            ids = tuple(doc_id for doc_id in item.doc_ids if self._covers(doc_id))
            return replace(item, doc_ids=ids) if ids else None
        return item if self._covers(_id_of(item)) else None

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Tell the source, which is not told when these documents are kept: it has to yield them again."""
        self._source.unsettle(doc_ids)

    def settled(self) -> None:
        """Do nothing: where the source's next reading begins must not pass over what was not wanted now."""

    def usage(self) -> RequestUsage:
        """Return what reading has cost so far."""
        return self._source.usage()


def _id_of(item: RawDocument | Dropped | Listing) -> str:
    return item.source_id if isinstance(item, Listing) else item.doc_id


class ListedRepository:
    """One repository of a marketplace's list, looked at now whether it is due or not.

    Args:
        spec: The marketplace's spec.
        repository: `owner/repo`, in small letters.
        opening: What the reading is to be like.
    """

    exhaustive, gives_listings = False, True

    def __init__(self, spec: str, repository: str, opening: Opening) -> None:
        self.spec, self._repository, self._opening = spec, repository, opening
        self._repositories = Repositories(spec, opening.root, opening.reach, opening.limits, opening.now)
        self._usage = RequestUsage()

    def version(self) -> None:
        """Return None: the look that would tell is the one that reading begins with."""

    def read(self) -> Iterator[Item]:
        """Yield what the repository holds of what is listed.

        Raises:
            SourceError: GitHub refuses the token.
            SourceUnavailable: It could not be looked at this time.
        """
        for look in drain(self._looks):
            yield from self._repositories.bringer.items(look)
        self._repositories.require_reached()

    def unsettle(self, doc_ids: Collection[str]) -> None:
        """Have these documents looked at again, should the run die before they are remembered."""
        self._repositories.unsettle(doc_ids)

    def settled(self) -> None:
        """Remember what was yielded."""
        self._repositories.settled()

    def usage(self) -> RequestUsage:
        """Return the requests sent so far."""
        return self._usage

    async def _looks(self) -> AsyncGenerator[Fetched, None]:
        reach = self._opening.reach
        async with reach.open(self._opening.root) as http:
            try:
                async for look in self._repositories.looks(http, self._units()):
                    yield look
            finally:
                self._usage = RequestUsage(http.requests, http.quota_left(reach.github_api_url))

    def _units(self) -> list[Unit]:
        """Return its units; a list may still name it as it was called before."""
        tables = listed_table(self._opening.root), repositories_table(self._opening.root)
        listed, looked = (table.read().filter(pl.col("source") == self.spec) for table in tables)
        below = pl.col("doc_id").str.to_lowercase().str.starts_with(f"{self._repository}/")
        same = pl.col("doc_id").str.to_lowercase() == self._repository
        named = listed.filter((pl.col("repository") == self._repository) | below | same)[
            "repository"
        ].unique()
        mine = pl.col("repository").is_in(named.implode())
        return units_of(listed.filter(mine), looked.filter(mine))
