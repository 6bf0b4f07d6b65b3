"""The history of a document: its revisions, one for each raw snapshot of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import polars as pl

from storage.errors import UnknownDocument, WrongInput
from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, RawDocument
from storage.state import read_run
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.identity import doc_key, shown_spec
from tasks.crawl.source.unchanged import document_digest

_HASH = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_SHOWN = 12  # hexadecimal digits of a revision


@dataclass(frozen=True, slots=True)
class Revision:
    """A document as it was fetched once; `part` is the raw part that holds it.

    `revision` is the SHA-256 of all that was fetched of it: its bytes, its bundle, its path and its licence.
    """

    revision: str
    doc_id: str
    source: str
    commit: str | None
    raw_hash: str
    fetched_at: datetime
    run_id: str
    part: str

    def as_dict(self) -> dict[str, object]:
        """Return what identifies it, as JSON takes it."""
        told = {"commit": self.commit, "raw_hash": self.raw_hash, "run_id": self.run_id}
        return {"revision": self.revision[:_SHOWN], "fetched_at": self.fetched_at.isoformat(), **told}


def revisions_of(root: Root, doc_id: str, source: str | None = None) -> list[Revision]:
    """Return the revisions of a document, of one source (as kept or printed) or of all, in the order of time.

    Raises `StorageError` if a raw part cannot be read; `UnknownDocument` if there is none: it was never
    fetched, or has been forgotten.
    """

    def revisions_in(file: str) -> list[Revision]:
        return [revision for revision, _ in snapshots_in(root, file, doc_id)]

    parts = root.each(revisions_in, root.files("raw/documents", ".parquet"))
    found = [r for revisions in parts for r in revisions if source in (None, r.source, shown_spec(r.source))]
    if not found:
        raise UnknownDocument(f"no raw snapshot below {root.uri} holds {doc_id}")
    return sorted(found, key=lambda r: r.fetched_at)


def snapshots_in(root: Root, file: str, doc_id: str) -> list[tuple[Revision, RawDocument]]:
    """Return the revisions of a document, of any source, that one raw part holds, and what was fetched."""
    return snapshots_of_part(root, file, {doc_key(doc_id)})


def snapshots_of_part(root: Root, file: str, keys: Collection[str]) -> list[tuple[Revision, RawDocument]]:
    """Return what `snapshots_in` does, of all documents with one of these keys of ids."""
    ids = read_frame(root, file, RAW_DOCUMENTS, ["doc_id"])["doc_id"].unique()
    written = [other for other in ids if doc_key(other) in keys]
    if not written:
        return []
    rows = read_frame(root, file, RAW_DOCUMENTS).filter(pl.col("doc_id").is_in(written))
    found = []
    for row in rows.iter_rows(named=True):
        raw = raw_document(row)
        whose = (raw.doc_id, raw.source, raw.commit, raw.raw_hash)
        found.append((Revision(document_digest(raw), *whose, row["fetched_at"], row["run_id"], file), raw))
    return found


def read_revision(root: Root, revision: Revision) -> RawDocument:
    """Return what was fetched of a revision; raise `StorageError` if its part cannot be read."""
    rows = read_frame(root, revision.part, RAW_DOCUMENTS)
    row = rows.filter(doc_id=revision.doc_id, source=revision.source).row(-1, named=True)
    return raw_document(row)


def choose(
    root: Root,
    revisions: Sequence[Revision],
    text: str,
    content_hash: Callable[[Revision], str | None] = lambda _: None,
) -> Revision:
    """Return the revision that a text means; of several the newest.

    A text is the beginning, from 4 digits on, of a revision, of a commit or of a hash of the content; a day
    (YYYY-MM-DD), at whose end the document was so; or a run, after which it was. Raises `WrongInput` if it
    means none of them. `revisions` are those of a document, in the order of time. `content_hash` gives the
    content hash of a revision, which is worked out if nothing else fits.
    """
    newest = list(reversed(revisions))
    if (until := _time_of(root, newest, text)) is not None:
        found = [r for r in newest if until(r)]
    elif _HASH.fullmatch(text):
        begin = text.lower()
        found = [
            r for r in newest if any((h or "").startswith(begin) for h in (r.revision, r.commit, r.raw_hash))
        ]
        found = found or [r for r in newest if (content_hash(r) or "").startswith(begin)]
    else:
        found = []
    if not found:
        held = ", ".join(f"{r.revision[:_SHOWN]} of {r.fetched_at:%Y-%m-%d}" for r in newest[:5])
        msg = f"{newest[0].doc_id} has no revision {text!r}; there are {held}: give one, a day or a run"
        raise WrongInput(msg)
    return found[0]


def _time_of(root: Root, revisions: Sequence[Revision], text: str) -> Callable[[Revision], bool] | None:
    """Return what tells of a revision whether it was there at a day or run; None: the text names neither."""
    try:
        day = date.fromisoformat(text) if len(text) == len("2026-01-01") else None
    except ValueError:
        day = None
    if day is not None:
        return lambda r: r.fetched_at.date() <= day
    of_run = [r for r in revisions if r.run_id == text]
    record = None if of_run or not re.fullmatch(r"[\w.-]+", text) else read_run(root, text)
    began = of_run[0].fetched_at if of_run else record and datetime.fromisoformat(record["started_at"])
    return None if not began else lambda r: r.fetched_at <= began
