"""Tombstones: drops what was forgotten before anything of it is written."""

from __future__ import annotations

from storage.schemas import Document, Dropped, Listing, RawDocument
from storage.tombstones import Forgotten
from tasks.crawl.source.github_url import parse_github_url

REASON = "forgotten"


def drop_forgotten(forgotten: Forgotten, item: RawDocument | Listing | Document) -> Dropped | None:
    """Return why an item must not be kept, None where nothing of it has been forgotten."""
    if not forgotten:
        return None
    if isinstance(item, Listing):
        # One reading alone: a tombstone of `o/r/x` must not keep out what is listed at `o/r/skills/x`.
        gone = any(forgotten.covers(doc_id) for doc_id in listed_ids(item.source_id, item.url)[:3])
        return _dropped(item.source_id, item.source) if gone else None
    body = item.body_hash if isinstance(item, Document) else None
    in_repository = item.repo is not None and forgotten.covers_repository(item.repo)
    if in_repository or forgotten.covers(item.doc_id, item.raw_hash, body):
        return _dropped(item.doc_id, item.source)
    return None


def listed_ids(source_id: str, url: str | None) -> list[str]:
    """Return the ids that a row of a list may stand for: its own, a server's, each reading of its address.

    The first reading of an address, which takes its ref for one without slashes, stands before the others.
    """
    named = parse_github_url(url)
    if named is None:
        return [source_id, f"mcp/{source_id}"]
    folders = [folder for _, folder in named.candidates()] or [""]
    # A ref that takes all that follows would make a row of any skill one of its repository's root.
    readings = [folders[0], *(folder for folder in folders[1:] if folder)]
    ids = [f"{named.repository}/{folder}" if folder else named.repository for folder in readings]
    return [source_id, f"mcp/{source_id}", *ids]


def _dropped(doc_id: str, source: str) -> Dropped:
    return Dropped(doc_id, source, REASON, "a tombstone covers it", rule="crawl.forgotten")
