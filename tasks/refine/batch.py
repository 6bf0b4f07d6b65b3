"""Refines a batch: the documents of a few raw parts become staged files, or stay for the risks they add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from storage.blobs import BlobStore
from storage.errors import StorageError
from storage.parquet import read_frame, write_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import (
    DOCUMENTS,
    DROPPED,
    RAW_DOCUMENTS,
    SCHEMA_VERSION,
    Document,
    Dropped,
    Finding,
    RawDocument,
    to_frame,
)
from storage.state import SIGNATURES, accepted_risks, documents_table, folded_table
from storage.tombstones import Forgotten
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.tombstones import drop_forgotten
from tasks.crawl.source.unchanged import document_digest
from tasks.models.llm.ask import Llm, LlmOptions, Slot, open_llm
from tasks.models.llm.budget import Ledger
from tasks.refine import plan
from tasks.refine.document import refine_bundles, refine_document
from tasks.refine.duplicates.near import NearLimits, SignatureRule, signatures
from tasks.refine.filters import SEVERITIES, FilterLimits
from tasks.refine.opinions import Opinions, second_opinions
from tasks.refine.risks.hits import GRAVE, HELD, OPINION, risk_hits, rule_id
from tasks.refine.risks.scan import GRAVITY
from tasks.refine.text.rules import finding

_BEFORE = ("doc_id", "source", "raw_hash", "files", "findings", "risks", "fetched_at", "first_seen_at")


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of a revision that adds risks.

    `told` is what a run says of it: `doc_id`, `name`, `commit`, its `risks`, a `message`, whether it is
    `held`, and whether that is `new` or an earlier run said so. Of one that is held, `before` stays, and
    `contents` are the bytes of its files.
    """

    told: dict[str, Any]
    before: Document | None = None
    contents: tuple[bytes, ...] = ()


class Revisions:
    """What the corpus holds of documents before their new revisions are put in place.

    `hold` is the least severity of an added risk for which the revision before stays; None: for none.
    """

    def __init__(self, root: Root, raw: Root, limits: FilterLimits, hold: str | None) -> None:
        self._root, self._raw, self._limits = root, raw, limits
        self._holding = SEVERITIES[: SEVERITIES.index(hold) + 1] if hold else ()

    def settle(self, refined: Iterable[tuple[RawDocument, Document]]) -> list[Settled]:
        """Return what becomes of those documents, as fetched and as refined, whose revision adds risks."""
        grave = [one for one in refined if any(risk.severity in GRAVE for risk in one[1].risks)]
        if not grave:
            return []
        partitions = {partition_of(raw.doc_id) for raw, *_ in grave}
        frames = [t(self._root).read(partitions, _BEFORE) for t in (folded_table, documents_table)]
        known = {row["doc_id"]: row for frame in frames for row in frame.iter_rows(named=True)}
        settled = (self._settled(raw, now, known[now.doc_id]) for raw, now in grave if now.doc_id in known)
        return [one for one in settled if one]

    def _settled(self, raw: RawDocument, now: Document, row: Mapping[str, Any]) -> Settled | None:
        files = None if now.files is None else map(asdict, now.files)
        if _identity(now.raw_hash, files) == _identity(row["raw_hash"], row["files"]):
            return None  # the same revision, refined by other rules
        if (before := self._fetched(row)) is None:
            return None
        # By the rules of now: what they find in both revisions is not new.
        bundle = refine_bundles([before], max_control_share=self._limits.max_control_share)[0]
        times = {name: row[name] for name in ("fetched_at", "first_seen_at")}
        was = refine_document(before, limits=self._limits, bundle=bundle, **times)
        # What a model said of it when it came; nobody asks again.
        asked = tuple(Finding(**risk) for risk in row["risks"] or () if risk["code"].startswith(OPINION))
        were = () if isinstance(was, Dropped) else (*was.risks, *asked)
        new = {*risk_hits(now.risks, _files_of(raw))}.difference(risk_hits(were, _files_of(before)))
        # What stands around a hit may make it graver than it was.
        grave = {risk.code: max(GRAVITY[r.severity] for r in were if r.code == risk.code) for risk in were}
        # A model does not cite the same line each time.
        rules = {hit.rule for hit in new}.difference(rule_id(risk.code) for risk in asked)
        rules |= {rule_id(r.code) for r in now.risks if GRAVITY[r.severity] > grave.get(r.code, -1)}
        added = [risk for risk in now.risks if risk.severity in GRAVE and rule_id(risk.code) in rules]
        if not added:
            return None
        said = "; ".join(f"{risk.severity} {risk.code}, {risk.message}" for risk in added)
        what = f"revision {document_digest(raw)[:12]} of {now.doc_id} adds {said}"
        told = {
            "doc_id": now.doc_id, "name": now.name, "commit": now.commit, "held": False, "new": True,
            "risks": [asdict(risk) for risk in added], "message": what,
        }  # fmt: skip
        known = accepted_risks(self._raw, now.doc_id)
        accepted = {rule for rule, when in known.items() if now.fetched_at <= when}
        holding = [r for r in added if r.severity in self._holding and rule_id(r.code) not in accepted]
        if not holding or isinstance(was, Dropped):
            return Settled(told)
        flags = " ".join(dict.fromkeys(f"--accept-risk {rule_id(risk.code)}" for risk in holding))
        how = f"{what}; it is not served: `skillery refresh {now.doc_id} {flags}` accepts that"
        is_new = all(found["message"] != how for found in row["findings"] or ())
        told |= {"held": True, "new": is_new, "message": how}
        kept = replace(was, risks=were, findings=(*was.findings, finding(HELD, how)))
        return Settled(told, kept, bundle.contents)

    def _fetched(self, row: Mapping[str, Any]) -> RawDocument | None:
        """Return what was fetched of a row of DOCUMENTS; None: no part of that day holds it any more."""
        is_it = [pl.col(name) == row[name] for name in ("doc_id", "source", "fetched_at")]
        for part in self._raw.files(f"raw/documents/date={row['fetched_at']:%Y-%m-%d}", ".parquet"):
            keys = read_frame(self._raw, part, RAW_DOCUMENTS, ["doc_id", "source", "fetched_at"])
            if keys.filter(is_it).height:
                found = read_frame(self._raw, part, RAW_DOCUMENTS).filter(is_it)
                return raw_document(found.row(-1, named=True))
        return None


def _identity(raw_hash: str, files: Iterable[Mapping[str, Any]] | None) -> tuple[Any, ...]:
    """Return what tells revisions apart: the bytes of SKILL.md, and of the files beside it."""
    return raw_hash, None if files is None else sorted((file["path"], file["sha256"]) for file in files)


def _files_of(raw: RawDocument) -> dict[str, bytes]:
    return {"SKILL.md": raw.content or b"", **{file.path: file.content for file in raw.contents}}


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
