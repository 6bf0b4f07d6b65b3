"""The cursor of a marketplace's listing, kept with the pages read so far: a run that dies goes on there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import LISTINGS, Dropped, Listing, to_frame
from storage.state import LISTED, listed_table
from tasks.crawl.skillsmp.api import ListingPage
from tasks.crawl.source.github_url import parse_github_url

_PLACE = ["repository", "ref", "rest"]


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
        # The findings of the last look at a place stay in its row.
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
    """Return the listings on GitHub as rows of LISTED, without the columns that a look fills."""
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
