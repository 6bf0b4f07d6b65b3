"""The cursor of a listing; pages are checkpointed as they arrive, so that a killed run continues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import LISTINGS, Dropped, Listing, to_frame
from storage.state import LISTED, listed_table, upsert
from tasks.crawl.skillsmp.api import ListingPage
from tasks.crawl.source.github_url import parse_github_url

_PLACE = ["repository", "ref", "rest"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where listing stands; times are ISO 8601.

    Args:
        watermark: The newest row when the last walk that came to its end began; None before that.
        newest: The newest row when the walk under way began.
        query: What the walk under way asks for; None: everything.
        page: The last page of it that is kept; 0: none yet.
        after: The time of that page's last row.
        walking: Whether a walk is under way.
        sweep: How many keywords have been asked for in all.
        rest: Whether the marketplace has more than it showed when it was walked from end to end.
        full: When it was last walked from end to end.
    """

    watermark: str | None = None
    newest: str | None = None
    query: str | None = None
    page: int = 0
    after: str | None = None
    walking: bool = False
    sweep: int = 0
    rest: bool = False
    full: str | None = None


class ListingState:
    """The cursor and the pages of one source, below `state/crawl/`.

    Args:
        root: Where they lie.
        spec: The spec of the source.
        base: The marketplace's URL: what is known of another's list is no use.
        now: When the reading began.
    """

    def __init__(self, root: Root, spec: str, base: str, now: datetime) -> None:
        self._root, self._spec, self._now = root, spec, now
        name = hashlib.sha256(f"{base} {spec}".encode()).hexdigest()[:12]
        self._file, self._pages = f"state/crawl/{name}/cursor.json", f"state/crawl/{name}/pages"
        self.cursor = Cursor(**(root.read_json(self._file) or {}))

    def keep(self, page: ListingPage, cursor: Cursor) -> None:
        """Keep a page's rows, then where listing stands."""
        rows = [row for row in page.rows if isinstance(row, Listing)]
        frame = to_frame(rows, LISTINGS)
        name = f"{self._pages}/{len(self._files()):06d}-{page.number:06d}.parquet"
        write_frame(self._root, name, frame, LISTINGS)
        self.move(cursor)

    def move(self, cursor: Cursor) -> None:
        """Remember where listing stands."""
        self.cursor = cursor
        self._root.write_json(self._file, asdict(cursor))

    def begun(self, page: ListingPage) -> Cursor:
        """Return the cursor once `page`, the next of its walk, is kept."""
        cursor, times = self.cursor, page.times
        # A row from the future would end every later walk before it began.
        newest = cursor.newest or (min(max(times), self._now).isoformat() if times else None)
        after = times[-1].isoformat() if times else cursor.after
        return replace(cursor, newest=newest, page=page.number, after=after)

    def merge(self) -> pl.DataFrame:
        """Put the pages kept into the table of what is listed, remove them, and return their places.

        What was known of a place by looking at it stays known.

        Returns:
            Columns repository, ref and rest.
        """
        files = self._files()
        frames = [read_frame(self._root, f, LISTINGS) for f in files]
        rows = listed_rows(pl.concat([pl.DataFrame(schema=LISTINGS), *frames]), self._spec)
        table = listed_table(self._root)
        known = table.read(columns=["source", *_PLACE, "doc_id", "outcome", "digest"])
        known = known.filter(pl.col("source") == self._spec).drop("source")
        rows = rows.join(known, on=_PLACE, how="left", maintain_order="left").select(LISTED.names())
        upsert(table, rows)
        for file in files:
            self._root.delete(file)
        return rows.select(_PLACE).unique(maintain_order=True)

    def _files(self) -> list[str]:
        return self._root.files(self._pages, ".parquet")


def listed_rows(listings: pl.DataFrame, spec: str) -> pl.DataFrame:
    """Return rows of LISTINGS by the place on GitHub that they name; what names none is left out.

    Returns:
        The columns of LISTED without what looking brings.
    """
    rows = []
    for row in listings.to_dicts():
        place = place_of(row["url"])
        if place is not None:
            written, ref, rest = place
            kept = {name: row[name] for name in ("source_id", "updated_at", "stars", "category", "tags")}
            rows.append({**kept, "source": spec, "written": written, "ref": ref, "rest": rest})
    schema = {n: t for n, t in LISTED.items() if n not in ("repository", "doc_id", "outcome", "digest")}
    frame = pl.DataFrame({n: [r[n] for r in rows] for n in schema}, schema=schema)
    return frame.with_columns(repository=pl.col("written").str.to_lowercase())


def place_of(url: str | None) -> tuple[str, str, str] | None:
    """Return `owner/repo`, first part of the ref (empty: the default branch) and what follows, of a URL."""
    found = parse_github_url(url)
    if found is None:
        return None
    return found.repository, "".join(found.rest[:1]), "/".join(found.rest[1:])


def not_taken(rows: Iterable[Listing | Dropped], spec: str) -> list[Dropped]:
    """Return what cannot be looked at of a page's rows: what is no listing, or is not on GitHub."""
    dropped = [row for row in rows if isinstance(row, Dropped)]
    for row in rows:
        if isinstance(row, Listing) and place_of(row.url) is None:
            detail = f"{row.url} is no folder of a repository on github.com"
            dropped.append(Dropped(row.source_id, spec, "unsupported-url", detail))
    return dropped


def as_time(text: str | None) -> datetime | None:
    """Return an ISO time of the cursor."""
    return datetime.fromisoformat(text) if text else None
