"""Applies tombstones to what a source yields, so that nothing that was forgotten is written again."""

from __future__ import annotations

from storage.schemas import Document, Dropped, Listing, RawDocument
from storage.tombstones import Forgotten
from tasks.crawl.source.identity import parse_github_url

REASON = "forgotten"


def drop_forgotten(forgotten: Forgotten, item: RawDocument | Listing | Document) -> Dropped | None:
    """Return the drop of an item that a tombstone covers, or None."""
    if not forgotten:
        return None
    if isinstance(item, Listing):
        # Only one reading of its URL: a tombstone of `o/r/x` must not cover a listing of `o/r/skills/x`.
        gone = any(forgotten.covers(doc_id) for doc_id in listed_ids(item.source_id, item.url)[:3])
        return _dropped(item.source_id, item.source) if gone else None
    body = item.body_hash if isinstance(item, Document) else None
    in_repository = item.repo is not None and forgotten.covers_repository(item.repo)
    if in_repository or forgotten.covers(item.doc_id, item.raw_hash, body):
        return _dropped(item.doc_id, item.source)
    return None


def listed_ids(source_id: str, url: str | None) -> list[str]:
    """Return the ids that a listing may mean: its own, a server's, those by its URL, shortest ref first."""
    ids = [source_id, f"mcp/{source_id}"]
    named = parse_github_url(url)
    if named is None:
        return ids
    folders = [folder for _, folder in named.candidates()] or [""]
    # If the ref took all parts, the listing of any skill would mean the repository's root.
    readings = [folders[0], *(folder for folder in folders[1:] if folder)]
    return ids + [f"{named.repository}/{folder}" if folder else named.repository for folder in readings]


def _dropped(doc_id: str, source: str) -> Dropped:
    return Dropped(doc_id, source, REASON, "a tombstone covers it", rule="crawl.forgotten")
