"""Refines a batch: the documents of a few raw parts become staged files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import polars as pl

from storage.blobs import BlobStore
from storage.errors import StorageError
from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.schemas import (
    DOCUMENTS,
    DROPPED,
    RAW_DOCUMENTS,
    SCHEMA_VERSION,
    Document,
    Dropped,
    RawDocument,
    to_frame,
)
from storage.state import SIGNATURES
from storage.tombstones import Forgotten
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.tombstones import drop_forgotten
from tasks.refine.document import refine_bundles, refine_document
from tasks.refine.duplicates.near import NearLimits, SignatureRule, signatures
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import STAGED, STAGED_DROPPED, STAGED_SIGNATURES, batch_name, read_batch


def refine_batch(
    root: Root,
    raw_parts: list[str],
    *,
    run_id: str,
    limits: FilterLimits,
    raw: Root | None = None,
    near: NearLimits | None = None,
) -> dict[str, int]:
    """Refine a batch of the plan; stage kept documents, their texts' signatures, and drops.

    The files of the documents kept become blobs. One raw part at a time is in memory.

    Args:
        root: Where the corpus lies.
        raw_parts: Files of raw documents, a batch of the plan.
        run_id: The run that refines.
        limits: The filters' thresholds.
        raw: The root of the raw parts; None: `root`.
        near: What will count as a near-duplicate; None: the defaults of `NearLimits`.

    Returns:
        The number of documents kept, and of those dropped by reason.
    """
    raw = raw or root
    forgotten, store = Forgotten.load(raw), BlobStore(root)
    results: list[Document | Dropped] = []
    for documents in _raw_documents(raw, read_batch(root, raw_parts)):
        results += _refined(documents, limits, forgotten, store)
    kept = [result for result in results if isinstance(result, Document)]
    dropped = [result for result in results if isinstance(result, Dropped)]
    name = f"{batch_name(raw_parts)}.parquet"
    frame = to_frame(kept, DOCUMENTS, run_id=run_id, schema_version=SCHEMA_VERSION)
    write_frame(root, f"{STAGED}/{name}", frame, DOCUMENTS)
    write_frame(root, f"{STAGED_SIGNATURES}/{name}", _signed(frame, near or NearLimits()), SIGNATURES)
    write_frame(root, f"{STAGED_DROPPED}/{name}", to_frame(dropped, DROPPED, run_id=run_id), DROPPED)
    return {"kept": len(kept), **Counter(d.reason for d in dropped)}


def _refined(
    documents: list[tuple[RawDocument, datetime, datetime]],
    limits: FilterLimits,
    forgotten: Forgotten,
    store: BlobStore,
) -> list[Document | Dropped]:
    # Scanned together, texts take a fraction of the time.
    raws = [raw for raw, _, _ in documents]
    bundles = refine_bundles(raws, max_control_share=limits.max_control_share)
    results: list[Document | Dropped] = []
    kept: list[bytes] = []
    for (raw, fetched, first_seen), bundle in zip(documents, bundles, strict=True):
        result = refine_document(
            raw, fetched_at=fetched, first_seen_at=first_seen, limits=limits, bundle=bundle
        )
        # A forgotten text may come back under another id and front matter: only its refined body tells.
        gone = drop_forgotten(forgotten, result) if isinstance(result, Document) else None
        results.append(gone or result)
        kept += bundle.contents if isinstance(results[-1], Document) else ()
    store.put(kept)
    return results


def _signed(documents: pl.DataFrame, near: NearLimits) -> pl.DataFrame:
    rule = SignatureRule.for_threshold(near.threshold)
    texts = documents.filter(pl.col("kind") == "skill").unique("body_hash", maintain_order=True)
    return texts.select("body_hash", rule=pl.lit(rule.name)).hstack(signatures(texts["body"], rule))


def _raw_documents(
    root: Root, wanted: pl.DataFrame
) -> Iterator[list[tuple[RawDocument, datetime, datetime]]]:
    """Yield the wanted documents of each raw part, with when they were fetched and first seen."""
    for (part,), rows in wanted.group_by("raw_part", maintain_order=True):
        first_seen = dict(rows.select("doc_id", "first_seen_at").iter_rows())
        frame = read_frame(root, str(part), RAW_DOCUMENTS)
        wanted_rows = frame.filter(pl.col("doc_id").is_in(list(first_seen))).to_dicts()
        if absent := first_seen.keys() - {r["doc_id"] for r in wanted_rows}:
            lacking = f"lacks {len(absent)} documents it should hold, {min(absent)} among them"
            msg = f"{root.at(str(part))} {lacking}"
            raise StorageError(msg)
        yield [(raw_document(r), r["fetched_at"], first_seen[r["doc_id"]]) for r in wanted_rows]
