"""The plan of refine: which documents are to be refined, found by comparing digests of texts and of rules."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import polars as pl

from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.state import SEEN, refined_table, seen_table
from storage.tombstones import Forgotten
from tasks.refine import STAGE_VERSION
from tasks.refine.duplicates.exact import preferred
from tasks.refine.filters import MAX_PARTS, FilterLimits
from tasks.refine.risks.rules import rules_digest
from tasks.refine.text.canonical import BOILERPLATE
from tasks.refine.text.rules import rules_text


@functools.cache
def rule_digests() -> dict[str, str]:
    """Return a digest of 12 hexadecimal digits for each kind of rule."""
    boilerplate = [(rule.name, rule.where, rule.pattern.pattern, rule.pattern.flags) for rule in BOILERPLATE]
    return {
        "risk rules": rules_digest(),
        "licences": _short_digest(rules_text("licences.yaml")),
        "placeholders": _short_digest(rules_text("placeholders.yaml")),
        "boilerplate": _short_digest(repr(boilerplate)),
    }


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


STAGED, STAGED_DROPPED, STAGED_SIGNATURES, STAGED_AGAIN = (
    "state/staged/kept", "state/staged/dropped", "state/staged/signatures", "state/staged/again"
)  # fmt: skip
STAGING = (STAGED, STAGED_DROPPED, STAGED_SIGNATURES, STAGED_AGAIN)
# The documents that the next plan has again whatever becomes of them now.
AGAIN = pl.Schema({"doc_id": pl.String})
PARTS_PER_BATCH = 10
# `action` is `refine` (new, changed, or refined by other rules), `remove` (no source has this id any more),
# `lose` (the copy of `lost_to_source` counts since this run) or `forget` (this source has it no more, but
# another source's copy counts).
PLAN = pl.Schema(SEEN | dict.fromkeys(("action", "lost_to", "lost_to_source"), pl.String))
_PLAN_FILE, _BATCHES = "state/plans/refine.parquet", "state/plans/refine"


@dataclass(frozen=True, slots=True)
class RefinePlan:
    """The raw parts to refine in batches, and numbers of documents to refine, gone and unchanged."""

    batches: list[list[str]]
    todo: int
    gone: int
    unchanged: int


def plan_refine(root: Root, limits: FilterLimits, opinions: str = "") -> RefinePlan:
    """Write and return this run's plan; unchanged documents refined by the same rules are not in it.

    `opinions` is all that second opinions depend on beside the texts; "" where none are asked for.
    """
    seen, forgotten = seen_table(root).read().filter(pl.col("retired_at").is_null()), Forgotten.load(root)
    if forgotten:
        seen = seen.filter([not forgotten.covers(doc_id) for doc_id in seen["doc_id"]])
    seen = seen.hstack(preferred(seen))
    rules = f"{digest_of_rules(limits)}{opinions and _short_digest(opinions)}:"
    found = pl.concat_str(pl.lit(rules), "digest")
    beaten = pl.concat_str(pl.lit("lost:"), "lost_to_source", pl.lit(" "), "lost_to")
    seen = seen.with_columns(digest=pl.when("kept").then(found).otherwise(beaten))
    winners, lost = seen.filter("kept"), seen.filter(~pl.col("kept"))
    refined = refined_table(root).read().select("doc_id", "source", "digest")
    todo = winners.join(refined, on=refined.columns, how="anti")
    newly_lost = lost.join(refined, on=refined.columns, how="anti")
    others = refined.join(winners, on="doc_id", how="anti")
    gone = others.join(lost, on=refined.columns, how="anti")
    elsewhere = refined.join(winners, on="doc_id", how="semi").join(seen, on=["doc_id", "source"], how="anti")
    steps = [(todo, "refine"), (gone, "remove"), (newly_lost, "lose"), (elsewhere, "forget")]
    rows = pl.concat([f.with_columns(action=pl.lit(a)) for f, a in steps], how="diagonal")
    for folder in (*STAGING, _BATCHES):
        root.delete(folder)
    write_frame(root, _PLAN_FILE, rows.select(PLAN.names()), PLAN)
    batches = _write_batches(root, rows.filter(pl.col("action") == "refine").select(PLAN.names()))
    return RefinePlan(batches, todo.height, gone["doc_id"].n_unique(), winners.height - todo.height)


def digest_of_rules(limits: FilterLimits) -> str:
    """Return 12 hexadecimal digits that change with the stage's version, its rules or the filters' limits."""
    # The class had this name when digests were first stored: another would refine every document again.
    stated = repr(limits).replace(type(limits).__name__, "Limits", 1)
    # Nor had it this limit, whose default keeps every skill that was met.
    stated = stated.replace(f", max_parts={MAX_PARTS}", "", 1)
    return hashlib.sha256(f"({STAGE_VERSION!r}, {rule_digests()!r}, {stated})".encode()).hexdigest()[:12]


def _write_batches(root: Root, todo: pl.DataFrame) -> list[list[str]]:
    """Write each batch's rows to a file of its own: if each read the whole plan, time were quadratic."""
    of_part = {str(part): rows for (part,), rows in todo.group_by("raw_part", maintain_order=True)}
    parts = sorted(of_part)
    batches = [parts[i : i + PARTS_PER_BATCH] for i in range(0, len(parts), PARTS_PER_BATCH)]
    for batch in batches:
        rows = pl.concat([of_part[part] for part in batch])
        write_frame(root, f"{_BATCHES}/{batch_name(batch)}.parquet", rows, PLAN)
    return batches


def batch_name(raw_parts: list[str]) -> str:
    """Return the name of a batch's files: 16 hexadecimal digits made of its raw parts' names."""
    return hashlib.sha256("\n".join(raw_parts).encode()).hexdigest()[:16]


def read_batch(root: Root, raw_parts: list[str]) -> pl.DataFrame:
    """Return the plan's rows of a batch; raise `StorageError` if the plan has no such batch."""
    return read_frame(root, f"{_BATCHES}/{batch_name(raw_parts)}.parquet", PLAN)


def read_plan(root: Root) -> pl.DataFrame:
    """Return the rows of this run's plan."""
    return read_frame(root, _PLAN_FILE, PLAN)
