"""Refines a batch: the documents of a few raw parts become staged files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any

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
from tasks.models.llm.ask import Llm, LlmOptions, Slot, open_llm
from tasks.models.llm.budget import Ledger
from tasks.refine import plan
from tasks.refine.document import refine_bundles, refine_document
from tasks.refine.duplicates.near import NearLimits, SignatureRule, signatures
from tasks.refine.filters import FilterLimits
from tasks.refine.opinions import Opinions, second_opinions
from tasks.refine.revisions import Revisions


def refine_batch(
    root: Root, raw_parts: list[str], *, run_id: str, limits: FilterLimits, raw: Root | None = None,
    near: NearLimits | None = None, hold: str | None = None, llm: LlmOptions | None = None,
    ledger: Ledger | None = None, slot: Slot = nullcontext,
) -> dict[str, Any]:  # fmt: skip
    """Refine a batch of the plan; stage kept documents, their texts' signatures, and drops.

    The files of the documents kept become blobs. One raw part at a time is in memory. Of a revision that is
    held the one before it is staged, and the next plan has it again. `raw` is the root of the raw parts,
    None: `root`; `hold` is as `Revisions` has it; `slot` is entered around each question to `llm`.

    Returns:
        The number of documents kept, and of those dropped by reason; `risks_added` tells of each revision
        that adds risks, as `Settled.told` does. With an LLM, `opinions` has the counts of
        `Opinions.told`, and `account` what the ledger carries on.
    """
    raw = raw or root
    forgotten, store = Forgotten.load(raw), BlobStore(root)
    revisions = Revisions(root, raw, limits, hold)
    results, told = list[Document | Dropped](), list[dict[str, Any]]()
    opinions = Opinions()
    ledger = ledger or (Ledger(llm.prices, llm.ceiling) if llm else Ledger())
    with open_llm(root, llm, ledger=ledger, slot=slot) if llm else nullcontext() as asked:
        for documents in _raw_documents(raw, plan.read_batch(root, raw_parts)):
            found, added = _refined(documents, limits, forgotten, store, revisions, asked, opinions)
            results += found
            told += added
    kept = [result for result in results if isinstance(result, Document)]
    dropped = [result for result in results if isinstance(result, Dropped)]
    name = f"{plan.batch_name(raw_parts)}.parquet"
    frame = to_frame(kept, DOCUMENTS, run_id=run_id, schema_version=SCHEMA_VERSION)
    write_frame(root, f"{plan.STAGED}/{name}", frame, DOCUMENTS)
    write_frame(root, f"{plan.STAGED_SIGNATURES}/{name}", _signed(frame, near or NearLimits()), SIGNATURES)
    write_frame(root, f"{plan.STAGED_DROPPED}/{name}", to_frame(dropped, DROPPED, run_id=run_id), DROPPED)
    if again := {*opinions.unfinished, *(one["doc_id"] for one in told if one["held"])}:
        rows = pl.DataFrame({"doc_id": sorted(again)})
        write_frame(root, f"{plan.STAGED_AGAIN}/{name}", rows, plan.AGAIN)
    return {"kept": len(kept), **Counter(d.reason for d in dropped), "risks_added": told} | (
        {"opinions": opinions.told(), "account": ledger.carried()} if llm else {}
    )


def _refined(
    documents: list[tuple[RawDocument, datetime, datetime]], limits: FilterLimits, forgotten: Forgotten,
    store: BlobStore, revisions: Revisions, llm: Llm | None, opinions: Opinions,
) -> tuple[list[Document | Dropped], list[dict[str, Any]]]:  # fmt: skip
    # Scanned together, texts take a fraction of the time.
    raws = [raw for raw, _, _ in documents]
    bundles = refine_bundles(raws, max_control_share=limits.max_control_share)
    results: dict[str, Document | Dropped] = {}
    kept: dict[str, tuple[bytes, ...]] = {}
    for (raw, fetched, first_seen), bundle in zip(documents, bundles, strict=True):
        result = refine_document(
            raw, fetched_at=fetched, first_seen_at=first_seen, limits=limits, bundle=bundle
        )
        # A forgotten text may come back under another id and front matter: only its refined body tells.
        gone = drop_forgotten(forgotten, result) if isinstance(result, Document) else None
        results[raw.doc_id] = gone or result
        kept[raw.doc_id] = bundle.contents if isinstance(results[raw.doc_id], Document) else ()
    texts = [(raw, found) for raw in raws if isinstance(found := results[raw.doc_id], Document)]
    if llm is not None:
        second_opinions(llm, texts, opinions)
        more = opinions.risks
        texts = [(raw, replace(one, risks=(*one.risks, *more.get(raw.doc_id, ())))) for raw, one in texts]
        results |= {raw.doc_id: one for raw, one in texts}
    settled = revisions.settle(texts)
    for one in settled:
        if one.before is not None:
            results[one.before.doc_id], kept[one.before.doc_id] = one.before, one.contents
    store.put([content for contents in kept.values() for content in contents])
    return list(results.values()), [one.told for one in settled]


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
            raise StorageError(f"{root.at(str(part))} {lacking}")
        yield [(raw_document(r), r["fetched_at"], first_seen[r["doc_id"]]) for r in wanted_rows]
