"""Added risks: those that a skill's revision has and the one before it had not, and for which it is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import polars as pl

from storage.parquet import read_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, Document, Dropped, Finding, RawDocument
from storage.state import accepted_risks, documents_table, folded_table
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.identity import doc_key
from tasks.refine.document import RefinedBundle, refine_bundles, refine_document
from tasks.refine.filters import SEVERITIES, FilterLimits
from tasks.refine.risks.rules import rule_id
from tasks.refine.text.rules import finding

HELD = "revision.held"
_TOLD = ("error", "warning")  # what a revision adds below these is no news
_BEFORE = ("doc_id", "source", "commit", "raw_hash", "files", "findings", "fetched_at", "first_seen_at")


@dataclass(frozen=True, slots=True)
class Settled:
    """A document of the corpus after a revision that added risks, and the bytes that are kept of it.

    `told` is what a run says of the revision: `held` tells that the one before it stays, and `new` that no
    run has said so yet.
    """

    result: Document | Dropped
    contents: tuple[bytes, ...]
    told: dict[str, Any]


def risks_added(was: Sequence[Finding], now: Sequence[Finding]) -> list[Finding]:
    """Return the risks from `warning` on that are new, or graver than they were, in their order."""
    before = {(risk.code, grave) for risk in was for grave in SEVERITIES[SEVERITIES.index(risk.severity) :]}
    return [risk for risk in now if risk.severity in _TOLD and (risk.code, risk.severity) not in before]


class Revisions:
    """What the corpus held of documents before the revisions that a batch refines.

    Args:
        root: The root of the corpus.
        raw: That of the raw parts.
        limits: The filters' thresholds.
        hold: The least severity of an added risk for which the revision before stays; None: for none.
    """

    def __init__(self, root: Root, raw: Root, limits: FilterLimits, hold: str | None) -> None:
        self._root, self._raw, self._limits = root, raw, limits
        self._held = SEVERITIES[: SEVERITIES.index(hold) + 1] if hold else ()

    def settle(self, found: Sequence[Document]) -> dict[str, Settled]:
        """Return what becomes of those of some documents whose revision added risks, by id."""
        grave = [one for one in found if any(risk.severity in _TOLD for risk in one.risks)]
        partitions = {partition_of(one.doc_id) for one in grave}
        tables = (documents_table(self._root), folded_table(self._root)) if grave else ()
        frames = [table.read(partitions, _BEFORE) for table in tables]
        known = {row["doc_id"]: row for frame in frames for row in frame.iter_rows(named=True)}
        settled = (self._settled(one, known.get(one.doc_id)) for one in grave)
        return {one.told["doc_id"]: one for one in settled if one}

    def _settled(self, now: Document, row: Mapping[str, Any] | None) -> Settled | None:
        files = None if now.files is None else [(file.path, file.sha256) for file in now.files]
        if row is None or (row["raw_hash"], _digests(row)) == (now.raw_hash, files):
            return None  # it is the first revision, or the same one refined by other rules
        raw = self._before(row)
        if raw is None:
            return None
        bundle = refine_bundles([raw], max_control_share=self._limits.max_control_share)[0]
        # By the rules of now: what they find in both texts is not the revision's.
        times: dict[str, datetime] = {name: row[name] for name in ("fetched_at", "first_seen_at")}
        before = refine_document(raw, limits=self._limits, bundle=bundle, **times)
        added = risks_added(before.risks if isinstance(before, Document) else (), now.risks)
        if not added:
            return None
        told = {
            "doc_id": now.doc_id, "name": now.name, "commit": now.commit, "held": False, "new": True,
            "risks": [{"code": r.code, "severity": r.severity, "message": r.message} for r in added],
        }  # fmt: skip
        accepted = accepted_risks(self._root, doc_key(now.doc_id))
        grave = [r for r in added if r.severity in self._held and rule_id(r.code) not in accepted]
        if not grave or isinstance(before, Dropped):
            return Settled(now, (), told)
        return self._with_reason(before, bundle, grave, now, told | {"held": True}, row)

    def _with_reason(
        self,
        before: Document,
        bundle: RefinedBundle,
        grave: Sequence[Finding],
        now: Document,
        told: dict[str, Any],
        row: Mapping[str, Any],
    ) -> Settled:
        flags = " ".join(f"--accept-risk {rule_id(risk.code)}" for risk in grave)
        risks = "; ".join(f"{risk.severity} {risk.code}, {risk.message}" for risk in grave)
        said = f"the revision {(now.commit or now.raw_hash)[:12]} of {now.fetched_at:%Y-%m-%d} adds {risks}"
        reason = finding(HELD, f"{said}; `skillery refresh {now.doc_id} {flags}` serves it")
        told["new"] = reason.message not in {found["message"] for found in row["findings"] or ()}
        kept = replace(before, findings=(*before.findings, reason))
        return Settled(kept, bundle.contents, told)

    def _before(self, row: Mapping[str, Any]) -> RawDocument | None:
        """Return what was fetched of a row of DOCUMENTS."""
        is_it = [pl.col(name) == row[name] for name in ("doc_id", "source", "fetched_at")]
        for part in self._raw.files(f"raw/documents/date={row['fetched_at']:%Y-%m-%d}", ".parquet"):
            if read_frame(self._raw, part, RAW_DOCUMENTS, ["doc_id", "source", "fetched_at"]).filter(is_it).height:
                found = read_frame(self._raw, part, RAW_DOCUMENTS).filter(is_it)
                return raw_document(found.row(-1, named=True))
        return None


def _digests(row: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    return None if row["files"] is None else [(file["path"], file["sha256"]) for file in row["files"]]
