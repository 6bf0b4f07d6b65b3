"""Refines a batch: the documents of a few raw parts become staged files."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import polars as pl

from storage.errors import StorageError
from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import (
    DOCUMENTS,
    DROPPED,
    RAW_DOCUMENTS,
    SCHEMA_VERSION,
    BundledFile,
    Document,
    Dropped,
    Finding,
    LicenceFile,
    RawDocument,
    to_frame,
)
from storage.state import SIGNATURES
from storage.tombstones import Forgotten
from tasks.crawl.source.tombstones import drop_forgotten
from tasks.refine.document import refine_document
from tasks.refine.duplicates.minhash import SignatureRule, signatures
from tasks.refine.duplicates.near import NearLimits
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import STAGED, STAGED_DROPPED, STAGED_SIGNATURES, batch_name, read_batch
from tasks.refine.risks.scan import scan_all
from tasks.refine.text.decode import decode

_BARE = ("fetched_at", "run_id", "schema_version")


def refine_batch(
    root: Root,
    raw_parts: list[str],
    *,
    run_id: str,
    limits: FilterLimits,
    raw: Root | None = None,
    near: NearLimits | None = None,
) -> dict[str, int]:
    """Refine a batch of the plan; stage what is kept, its texts' signatures, and what is dropped.

    Args:
        root: Where the corpus lies.
        raw_parts: Files of raw documents, a batch of the plan.
        run_id: The run that refines.
        limits: The filters' thresholds.
        raw: The root of the raw parts; None: `root`.
        near: What will count as a near-duplicate; the defaults of `NearLimits` where None.

    Returns:
        How many documents were kept and how many dropped, by reason.
    """
    documents = _raw_documents(raw or root, read_batch(root, raw_parts))
    # Together, texts are scanned in a fraction of the time.
    risks = scan_all([decode(document.content or b"")[0] for document, _, _ in documents])
    results = [
        refine_document(
            document, fetched_at=fetched_at, first_seen_at=first_seen_at, limits=limits, risks=found
        )
        for (document, fetched_at, first_seen_at), found in zip(documents, risks, strict=True)
    ]
    # Only the refined body tells a text that comes again under another id and another head.
    forgotten = Forgotten.load(raw or root)
    results = [(drop_forgotten(forgotten, r) or r) if isinstance(r, Document) else r for r in results]
    kept = [r for r in results if isinstance(r, Document)]
    dropped = [r for r in results if isinstance(r, Dropped)]
    name = f"{batch_name(raw_parts)}.parquet"
    frame = to_frame(kept, DOCUMENTS, run_id=run_id, schema_version=SCHEMA_VERSION)
    write_frame(root, f"{STAGED}/{name}", frame, DOCUMENTS)
    write_frame(root, f"{STAGED_SIGNATURES}/{name}", _signed(frame, near or NearLimits()), SIGNATURES)
    write_frame(root, f"{STAGED_DROPPED}/{name}", to_frame(dropped, DROPPED, run_id=run_id), DROPPED)
    return {"kept": len(kept), **Counter(d.reason for d in dropped)}


def _signed(documents: pl.DataFrame, near: NearLimits) -> pl.DataFrame:
    rule = SignatureRule.for_threshold(near.threshold)
    texts = documents.filter(pl.col("kind") == "skill").unique("body_hash", maintain_order=True)
    return texts.select("body_hash", rule=pl.lit(rule.name)).hstack(signatures(texts["body"], rule))


def _raw_documents(root: Root, wanted: pl.DataFrame) -> list[tuple[RawDocument, datetime, datetime]]:
    found = []
    for (part,), rows in wanted.group_by("raw_part", maintain_order=True):
        first_seen = dict(rows.select("doc_id", "first_seen_at").iter_rows())
        frame = read_frame(root, str(part), RAW_DOCUMENTS)
        wanted_rows = frame.filter(pl.col("doc_id").is_in(list(first_seen))).to_dicts()
        if absent := first_seen.keys() - {r["doc_id"] for r in wanted_rows}:
            msg = (
                f"{root.at(str(part))} lacks {len(absent)} documents it should hold, {min(absent)} among them"
            )
            raise StorageError(msg)
        found += [(_raw_document(r), r["fetched_at"], first_seen[r["doc_id"]]) for r in wanted_rows]
    return found


def _raw_document(row: dict[str, Any]) -> RawDocument:
    values = {k: v for k, v in row.items() if k not in _BARE}
    values["tags"] = tuple(row["tags"] or ())
    values["findings"] = tuple(Finding(**f) for f in row["findings"] or ())
    values["licence_files"] = tuple(LicenceFile(**f) for f in row["licence_files"] or ())
    values["files"] = None if row["files"] is None else tuple(BundledFile(**f) for f in row["files"])
    return RawDocument(**values)
