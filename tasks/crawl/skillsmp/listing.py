"""The listing of a marketplace: walked while it changes, without losing a row, and its cursor on disk."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Collection
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import LISTINGS, Dropped, Listing, to_frame
from storage.state import LISTED, listed_table
from tasks.crawl.skillsmp.api import PAGE_ROWS, ListingPage, SkillsMP
from tasks.crawl.source.identity import parse_github_url

_MORE_PASSES = 5
_BARREN_PASSES = 2  # one pass may miss a row by chance, where rows of one age come in any order
_BARREN_PAGES = 3  # without a new row, of a listing that does not grow: the server repeats its last page
_PLACE = ["repository", "ref", "rest"]


async def walk(
    client: SkillsMP, query: str | None = None, start_page: int = 1, *, until: datetime | None = None,
    after: datetime | None = None, limit: int = PAGE_ROWS,
) -> AsyncGenerator[ListingPage, None]:  # fmt: skip
    """Yield a listing's pages, newest rows first, each row once; raises as `SkillsMP.page`.

    Rows move while pages are read, and no row may be lost or come twice:

    - Rows inserted above move others down. Rows met twice are left out the second time; the inserted rows are
      fetched from the top before the last page is yielded.
    - Rows removed above move others up, across a page boundary that was passed. When the total shrinks, the
      pages before are read again, back to one that begins with a known row.
    - Rows of one age may come in another order each time. All pages are read again if more rows are stated
      than were met.
    - An updated row goes to the top. If this walk misses it, the next walk down to this one's start meets it.

    The walk ends with the listing, or with a page whose rows are all older than `until` (None: no watermark).
    A walk that broke off goes on at `start_page`, its last page, or before: at a page whose rows are not all
    older than `after`, the time of the last row yielded.
    """
    steps = _Walk(client, query, limit)
    page = await steps.begin(start_page, after)
    while page.has_next and not _all_older(page, until) and steps.barren < _BARREN_PAGES:
        yield steps.taken(page)
        page = await steps.next(page)
    last = steps.taken(page)
    missed = (*await steps.missed_above(), *await steps.missed_among(page))
    yield replace(last, rows=(*missed, *last.rows), has_next=False)


class _Walk:
    """The rows that a walk has met, and signs that rows moved meanwhile."""

    def __init__(self, client: SkillsMP, query: str | None, limit: int) -> None:
        self._client, self._query, self._limit = client, query, limit
        self._met: set[tuple[str, str | None]] = set()
        self._nameless = 0  # rows without an id, which cannot be recognised
        self._shifted = self._from_top = False
        self._total: int | None = None
        self._again: tuple[Listing | Dropped, ...] = ()  # found by reading earlier pages again
        self.barren = 0  # pages in a row without a new row

    async def begin(self, number: int, after: datetime | None) -> ListingPage:
        """Read the first page; rows may have moved up since the page before it was read."""
        page = await self._read(number)
        while number > 1 and after is not None and not any(t >= after for t in page.times):
            number -= 1
            page = await self._read(number)
        self._from_top = number == 1
        return page

    async def next(self, page: ListingPage) -> ListingPage:
        """Read the page after `page`; where rows moved up, read those before it again."""
        following = await self._read(page.number + 1)
        if None not in (page.total, following.total) and (following.total or 0) < (page.total or 0):
            self._again = await self._moved_up(page.number)
        return following

    async def _moved_up(self, number: int) -> tuple[Listing | Dropped, ...]:
        """Return the new rows of the pages from `number` back to one that begins with a known row."""
        found: tuple[Listing | Dropped, ...] = ()
        for above in range(number, 0, -1):
            page = await self._read(above)
            unknown = self._new(page.rows)
            found = (*unknown, *found)
            # An empty page is no end: more rows went than a page holds, so those before it moved too.
            if len(unknown) < len(page.rows):
                break
        return found

    def taken(self, page: ListingPage) -> ListingPage:
        """Return a page without the rows that were met before; rows without an id always count as new."""
        nameless = tuple(row for row in page.rows if not _key(row)[0])
        self._nameless += len(nameless)
        own = (*self._new(page.rows), *nameless)
        self._shifted |= len(own) < len(page.rows)
        rows, self._again = (*self._again, *own), ()
        grown = self._total is not None and page.total is not None and page.total > self._total
        self._total = page.total
        self.barren = 0 if rows or grown else self.barren + 1
        return replace(page, rows=rows)

    async def missed_among(self, last: ListingPage) -> tuple[Listing | Dropped, ...]:
        """Return rows that were on no page when it was read, since rows of one age come in any order.

        They are looked for if the listing ended with fewer rows than it states and some were met twice.
        """
        found: tuple[Listing | Dropped, ...] = ()
        barren, ended = 0, self._from_top and not (last.has_next or last.capped)
        for _ in range(_MORE_PASSES if ended and self._shifted else 0):
            if len(self._met) + self._nameless >= (last.total or 0) or barren == _BARREN_PASSES:
                break
            before = len(found)
            for number in range(1, last.number + 1):
                found = (*found, *self._new((await self._read(number)).rows))
            barren = barren + 1 if len(found) == before else 0
        return found

    async def missed_above(self) -> tuple[Listing | Dropped, ...]:
        """Return the rows inserted above since the top was read, if any row moved down."""
        found: tuple[Listing | Dropped, ...] = ()
        number, more = 1, self._shifted
        while more:
            page = await self._read(number)
            unknown = self._new(page.rows)
            found = (*found, *unknown)
            number, more = number + 1, bool(unknown) and page.has_next
        return found

    def _new(self, rows: tuple[Listing | Dropped, ...]) -> tuple[Listing | Dropped, ...]:
        fresh: dict[tuple[str, str | None], Listing | Dropped] = {}
        for row in rows:
            if (key := _key(row))[0] and key not in self._met:
                fresh.setdefault(key, row)
        self._met.update(fresh)
        return tuple(fresh.values())

    async def _read(self, number: int) -> ListingPage:
        return await self._client.page(self._query, number, limit=self._limit)


def _key(row: Listing | Dropped) -> tuple[str, str | None]:
    return (row.source_id, row.url) if isinstance(row, Listing) else (row.doc_id, row.detail)


def _all_older(page: ListingPage, until: datetime | None) -> bool:
    return until is not None and bool(page.times) and all(time < until for time in page.times)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position in a listing; times are ISO 8601."""

    watermark: str | None = None  # the newest row when the last complete walk began
    newest: str | None = None  # the newest row when the walk under way began
    query: str | None = None  # the query of the walk under way; None: all rows
    page: int = 0  # its last page that is kept; 0: none yet
    after: str | None = None  # the time of that page's last row
    walking: bool = False  # whether a walk is under way
    sweep: int = 0  # how many keywords have been asked for in all
    rest: bool = False  # whether the last walk from end to end showed fewer rows than the marketplace has
    full: str | None = None  # when the list was last walked from end to end


class ListingState:
    """The cursor and the pages of one source at the marketplace `base`, below `state/crawl/`."""

    def __init__(self, root: Root, spec: str, base: str, now: datetime) -> None:
        self._root, self._spec, self._now = root, spec, now
        name = hashlib.sha256(f"{base} {spec}".encode()).hexdigest()[:12]
        self._file, self._pages = f"state/crawl/{name}/cursor.json", f"state/crawl/{name}/pages"
        self.cursor = Cursor(**(root.read_json(self._file) or {}))

    def keep(self, page: ListingPage, cursor: Cursor) -> None:
        """Write a page's rows, then the cursor."""
        frame = to_frame([row for row in page.rows if isinstance(row, Listing)], LISTINGS)
        name = f"{self._pages}/{len(self._files()):06d}-{page.number:06d}.parquet"
        write_frame(self._root, name, frame, LISTINGS)
        self.move(cursor)

    def move(self, cursor: Cursor) -> None:
        """Write the cursor."""
        self.cursor = cursor
        self._root.write_json(self._file, asdict(cursor))

    def begun(self, page: ListingPage) -> Cursor:
        """Return the cursor for the time after `page`, the next of its walk, is kept."""
        cursor, times = self.cursor, page.times
        # A row from the future would be a watermark that ends every later walk at once.
        newest = cursor.newest or (min(max(times), self._now).isoformat() if times else None)
        after = times[-1].isoformat() if times else cursor.after
        return replace(cursor, newest=newest, page=page.number, after=after)

    def merge(self) -> pl.DataFrame:
        """Move the kept pages into the table `listed`; return their places: repository, ref and rest."""
        files, table = self._files(), listed_table(self._root)
        frames = [read_frame(self._root, f, LISTINGS) for f in files]
        rows = _listed_rows(pl.concat([pl.DataFrame(schema=LISTINGS), *frames]), self._spec)
        # What was found at a place last stays in its row.
        known = table.read(columns=["source", *_PLACE, "doc_id", "outcome", "digest"])
        known = known.filter(source=self._spec).drop("source")
        rows = rows.join(known, on=_PLACE, how="left", maintain_order="left").select(LISTED.names())
        table.upsert(rows)
        for file in files:
            self._root.delete(file)
        return rows.select(_PLACE).unique(maintain_order=True)

    def _files(self) -> list[str]:
        return self._root.files(self._pages, ".parquet")


def _listed_rows(listings: pl.DataFrame, spec: str) -> pl.DataFrame:
    """Return the listings on GitHub as rows of LISTED, without the columns that fetching fills."""
    rows = [
        {**row, "source": spec, "written": place[0], "ref": place[1], "rest": place[2]}
        for row in listings.to_dicts()
        if (place := _place_of(row["url"]))
    ]
    schema = {n: t for n, t in LISTED.items() if n not in ("repository", "doc_id", "outcome", "digest")}
    frame = pl.DataFrame({n: [r[n] for r in rows] for n in schema}, schema=schema)
    return frame.with_columns(repository=pl.col("written").str.to_lowercase())


def _place_of(url: str | None) -> tuple[str, str, str] | None:
    """Return `owner/repo`, the ref's first part (empty: the default branch) and the rest of a GitHub URL."""
    found = parse_github_url(url)
    return (found.repository, "".join(found.rest[:1]), "/".join(found.rest[1:])) if found else None


def not_taken(rows: Collection[Listing | Dropped], spec: str) -> list[Dropped]:
    """Return the dropped rows of a page, and its listings that are not on GitHub as dropped."""
    elsewhere = [row for row in rows if isinstance(row, Listing) and _place_of(row.url) is None]
    detail = "is no folder of a repository on github.com"
    return [row for row in rows if isinstance(row, Dropped)] + [
        Dropped(row.source_id, spec, "unsupported-url", f"{row.url} {detail}") for row in elsewhere
    ]


def as_time(text: str | None) -> datetime | None:
    """Return an ISO time of the cursor."""
    return datetime.fromisoformat(text) if text else None
