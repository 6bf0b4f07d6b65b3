"""The datasheet of an exported corpus: its contents, the documents left out with reasons, the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import polars as pl

from storage.root import Root
from storage.schemas import SCHEMA_VERSION
from storage.state import corpus_counts, read_runs
from tasks.refine import STAGE_VERSION
from tasks.refine.licences.policy import LicencePolicy
from tasks.refine.rule_digests import rule_digests

_NOTE = (
    "Every text is its author's and third-party data: source, commit and licence stand in its row."
    " Risk findings are hints; no finding does not mean safe."
)


def _counts(column: pl.Series) -> dict[str, int]:
    """Return how often each value occurs, the most frequent first, then by name; null counts as unknown."""
    counted = column.fill_null("unknown").value_counts(name="n")
    return dict(counted.sort(["n", column.name], descending=[True, False]).iter_rows())


def datasheet(
    root: Root, exported: pl.DataFrame, report: Mapping[str, Any], policy: LicencePolicy, now: datetime
) -> dict[str, Any]:
    """Return the datasheet as a JSON object.

    Args:
        root: Where the corpus lies.
        exported: Columns source, licence, licence_class and language of the documents exported.
        report: The `ExportReport` as a dict; all but `out` becomes part of the datasheet.
        policy: The policy that gave the licence classes.
        now: Time of the export.
    """
    runs = read_runs(root, last=1)
    by_class = exported.group_by("licence_class").agg("licence").sort("licence_class")
    return {
        "made_at": now.isoformat(),
        "run_id": runs[0]["run_id"] if runs else None,
        **{key: value for key, value in report.items() if key != "out"},
        "sources": _counts(exported["source"]),
        "languages": _counts(exported["language"]),
        "licences": {str(name): _counts(pl.Series("licence", found)) for name, found in by_class.iter_rows()},
        "dropped": corpus_counts(root).dropped,
        "policy": asdict(policy),
        "versions": {"schema": SCHEMA_VERSION, "refine": STAGE_VERSION, **rule_digests()},
    }


def _cell(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _table(title: str, what: str, counts: Mapping[str, object]) -> str:
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in counts.items()]
    return "\n".join([f"## {title}", "", f"| {what} | documents |", "|---|---|", *(rows or ["| none | 0 |"])])


def datasheet_markdown(sheet: Mapping[str, Any]) -> str:
    """Return a datasheet as Markdown."""
    by_class = {
        f"{name}: {licence}": n for name, found in sheet["licences"].items() for licence, n in found.items()
    }
    size = f"{sheet['documents']:,} documents, {sheet['with_text']:,} of them with their text"
    versions = ", ".join(f"{name} {_cell(version)}" for name, version in sheet["versions"].items())
    policy = sheet["policy"]
    allowed, denied = ", ".join(policy["allow"]), ", ".join(policy["deny"])
    others = f"any other is {policy['other']}, unknown is {policy['unknown']}"
    parts = [
        "# Datasheet of a corpus of agent skills",
        f"{size}; made {sheet['made_at']} after run {_cell(sheet['run_id'])}. {_NOTE}",
        _table("Sources", "source", sheet["sources"]),
        _table("Licences exported", "class: licence", by_class),
        _table("The corpus by licence class, when exported", "class", sheet["classes"]),
        _table("Left out by licence class", "class", sheet["left_out"]),
        _table("Languages", "language", sheet["languages"]),
        _table("Not in the corpus, by reason", "reason", sheet["dropped"]),
        "## Rules",
        f"Versions: {versions}.",
        f"Licence policy: allowed are {allowed}; denied are {denied}; {others}.",
    ]
    return "\n\n".join(parts) + "\n"
