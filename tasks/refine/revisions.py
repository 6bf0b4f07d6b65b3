"""Revisions of skills that add risks to those of the one before: told of, and held where they are grave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from storage.parquet import read_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import RAW_DOCUMENTS, Document, Dropped, Finding, RawDocument
from storage.state import accepted_risks, documents_table, folded_table
from tasks.crawl.raw_parts import raw_document
from tasks.crawl.source.unchanged import document_digest
from tasks.refine.document import refine_bundles, refine_document
from tasks.refine.filters import SEVERITIES, FilterLimits
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
        new = {*risk_hits(now.risks, _files(raw))}.difference(risk_hits(were, _files(before)))
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


def _files(raw: RawDocument) -> dict[str, bytes]:
    return {"SKILL.md": raw.content or b"", **{file.path: file.content for file in raw.contents}}
