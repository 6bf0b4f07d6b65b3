"""The source `skillsmp[:QUERY]`: the marketplace's list, then the repositories that it names.

The list is walked by pages; new and changed documents are fetched by repository (SkillFlow, appendix A.1).
"""

from __future__ import annotations

import string
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter

import polars as pl

from storage.errors import SourceError
from storage.partitions import PARTITIONS
from storage.schemas import Listing
from storage.state import listed_table, repositories_table
from tasks.crawl.github.changes import as_listed
from tasks.crawl.github.fetch import FetchResult
from tasks.crawl.github.repositories import ListedRepository, due, listed_repositories
from tasks.crawl.github.source import RepositorySource
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.http.settings import SKILLSMP_KEY, credential
from tasks.crawl.skillsmp.api import PAGE_ROWS, ListingPage, SkillsMP
from tasks.crawl.skillsmp.listing import ListingState, as_time, not_taken, walk
from tasks.crawl.source.base import CrawlContext, Item, drain

_PAGE_TRIES = 2  # each with the client's own retries
# From names and descriptions of skills, the most common words first.
_WORDS = """
using creating data testing patterns documentation design management analysis workflow api security agent
project content task expert database deployment implementing context integration performance planning
research review code frontend backend generator guide writing web react github git framework claude
markdown metrics requirements search architecture automation html python product model infrastructure
configuration production memory compliance cli docker sql marketing component format audit decision
prompt server css rules tdd seo plan email style training library service incident quality typescript llm
protocol validation mobile cloud aws azure gcp kubernetes terraform devops monitoring logging tracing
debugging error refactoring migration schema query postgres supabase redis graphql rest authentication
encryption privacy vulnerability threat malware forensics network linux windows macos ios android swift
kotlin flutter rust golang java csharp php ruby rails django fastapi spring nextjs vue angular svelte
tailwind accessibility animation figma brand image video audio speech music photo pdf docx xlsx pptx
spreadsheet slides diagram mermaid chart dashboard visualization statistics forecast machine learning
embedding rag vector notebook pandas excel finance accounting invoice tax trading crypto blockchain legal
contract health medical biology chemistry physics math education lesson language translation grammar
story blog social youtube podcast newsletter sales customer support crm hiring interview resume meeting
calendar notes obsidian notion slack jira linear travel recipe game unity unreal godot robot hardware
embedded arduino geospatial map weather news scraping browser playwright selenium e2e unit benchmark
profiling cache queue streaming kafka spark airflow etl pipeline release changelog commit branch merge
issue ticket sprint roadmap strategy startup pricing survey persona journey brief template checklist
skill plugin hook mcp tool orchestrator subagent session knowledge ontology taxonomy archive
"""
# The sweep asks for them in this order. Letters and digits are for skills that contain none of the words.
SWEEP_KEYWORDS = tuple(dict.fromkeys([*_WORDS.split(), *string.ascii_lowercase, *string.digits]))


class SkillsMPSource(RepositorySource):
    """The marketplace's skills that match `query` (empty: all), as listings, then as documents."""

    def __init__(self, query: str, context: CrawlContext) -> None:
        super().__init__(f"skillsmp:{query}" if query else "skillsmp", context)
        self._query, self._limit = query or None, context.limit
        self._state = ListingState(context.root, self.spec, self._settings.skillsmp_url, context.now)
        self._trouble: HttpTerminal | HttpTransient | None = None

    def read(self) -> Iterator[Item]:
        """Yield new listings, then the listed documents of repositories that are due.

        Where the marketplace refuses, repositories known to be due are looked at before that is raised.
        """
        for piece in drain(self._pieces):
            if isinstance(piece, ListingPage):
                yield from (row for row in piece.rows if isinstance(row, Listing))
                yield from not_taken(piece.rows, self.spec)
            elif isinstance(piece, FetchResult):
                yield from self._changes.items(piece)
            else:
                yield from as_listed(piece, self.spec)
        if isinstance(self._trouble, HttpTerminal) and self._trouble.reason == "html":
            raise SourceError(self.spec, "blocked", str(self._trouble)) from self._trouble
        if self._trouble is not None:
            raise self._error(self._trouble) from self._trouble
        self._require_reached()

    async def _pieces(self) -> AsyncGenerator[ListingPage | ListedRepository | FetchResult, None]:
        url = self._settings.skillsmp_url
        async with self._client(url) as http:
            client = SkillsMP(http, url, credential(SKILLSMP_KEY), source=self.spec)
            async for page in self._pages(client):
                yield page
            todo, rest = self._repositories(self._state.merge())
            for repository in rest:
                yield repository
            async for result in self._fetched(http, todo):
                yield result

    async def _pages(self, client: SkillsMP) -> AsyncGenerator[ListingPage, None]:
        try:
            if self._limit is not None:
                async for page in self._first(client, self._limit):
                    yield page
                return
            for query in self._queries():
                async for page in self._walked(client, query):
                    yield page
        except (HttpTerminal, HttpTransient) as error:
            self._trouble = error

    async def _first(self, client: SkillsMP, wanted: int) -> AsyncGenerator[ListingPage, None]:
        async for page in walk(client, self._query, limit=min(wanted, PAGE_ROWS)):
            taken = replace(page, rows=page.rows[:wanted])
            self._state.keep(taken, self._state.cursor)
            yield taken
            wanted -= len(taken.rows)
            if wanted <= 0:
                return

    def _queries(self) -> Iterator[str | None]:
        """Yield the queries of tonight's walks: of a walk that broke off, the source's own, the sweep's."""
        state = self._state
        if state.cursor.walking and state.cursor.query != self._query:
            yield state.cursor.query
        yield self._query
        # Keywords look for everything, so that a source with a query of its own is not swept.
        swept = state.cursor.rest and self._query is None
        for _ in range(self._settings.sweep_keywords if swept else 0):
            turn = state.cursor.sweep
            state.move(replace(state.cursor, sweep=turn + 1))
            yield SWEEP_KEYWORDS[turn % len(SWEEP_KEYWORDS)]

    async def _walked(self, client: SkillsMP, query: str | None) -> AsyncGenerator[ListingPage, None]:
        """Yield the pages of one walk from the cursor on; each is kept on disk before it is yielded."""
        state, main = self._state, query == self._query
        if not (state.cursor.walking and state.cursor.query == query):
            state.move(replace(state.cursor, newest=None, query=query, page=0, after=None, walking=True))
        until, capped = self._until() if main else None, False
        async for page in self._tried_again(client, query, until):
            capped = page.capped
            yield page
        done = replace(state.cursor, walking=False, query=None, page=0, after=None)
        if main:
            done = replace(done, watermark=done.newest or done.watermark)
        if main and until is None:
            done = replace(done, rest=capped, full=self._now.isoformat())
        state.move(done)

    async def _tried_again(
        self, client: SkillsMP, query: str | None, until: datetime | None
    ) -> AsyncGenerator[ListingPage, None]:
        """Yield the pages of a walk, which goes on at the cursor once after a transient error."""
        for tries_left in reversed(range(_PAGE_TRIES)):
            at, after = max(1, self._state.cursor.page), as_time(self._state.cursor.after)
            try:
                async for page in walk(client, query, at, until=until, after=after):
                    self._state.keep(page, self._state.begun(page))
                    yield page
                return
            except HttpTransient as error:
                if not tries_left or error.reason == "quota":
                    raise

    def _until(self) -> datetime | None:
        """Return the watermark, or None if the list is to be walked from end to end again."""
        # A row may enter the list long after it was updated, below the watermark. If the marketplace shows
        # all rows, a complete walk every few days meets it; if not, the sweep may.
        cursor = self._state.cursor
        full, oldest = as_time(cursor.full), self._now - timedelta(days=self._settings.recheck_days)
        if not cursor.rest and (full is None or not oldest <= full <= self._now):  # a clock may be set back
            return None
        return as_time(cursor.watermark)

    def _repositories(self, places: pl.DataFrame) -> tuple[list[ListedRepository], list[ListedRepository]]:
        """Return the repositories to fetch, and the others with the rows that tonight's pages had."""
        todo, rest, met = list[ListedRepository](), list[ListedRepository](), set(places.iter_rows())
        listed, looked = listed_table(self._root), repositories_table(self._root)
        for partition in range(PARTITIONS):
            rows = (table.read([partition]).filter(source=self.spec) for table in (listed, looked))
            found = listed_repositories(*rows)
            if self._limit is not None:
                found = [r for r in found if _only(r, met).listed]
            now = due(found, self._now, self._settings.recheck_days)
            names = {(r.name, r.ref) for r in now}
            todo += now
            rest += [_only(r, met) for r in found if (r.name, r.ref) not in names]
        return due(todo, self._now, self._settings.recheck_days), [r for r in rest if r.listed]


def _only(repository: ListedRepository, met: set[tuple[str, ...]]) -> ListedRepository:
    place = itemgetter("repository", "ref", "rest")
    return replace(repository, listed=tuple(row for row in repository.listed if place(row) in met))
