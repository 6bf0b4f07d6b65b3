"""Evaluate: measures what is served, and compares it with the evaluations before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.run_page import markdown_table, named, on_page, show_table, tell
from flows.runners import Call, run_batches
from flows.settings import load_settings
from storage.errors import EvaluationFell
from tasks.evaluate.shells import (
    ask_sample,
    count_served,
    keep_history,
    pin_served,
    probe_served,
    report_drift,
)
from tasks.models.visible import visible


@flow(name="evaluate", flow_run_name=named("evaluate {root}"))
def evaluate(root: str = "data") -> dict[str, Any]:
    """Evaluate what is served at the start: quality of each leg, latency, size, drop reasons, mixes, drift.

    The figures go to the history `reports/evaluations/`, and with pictures to `reports/evaluation.html`. The
    run fails if a measure is worse than its threshold (`SKILLERY_EVALUATION_...`); what is served stays.

    Args:
        root: Folder of all that Skillery keeps.

    Raises:
        EvaluationFell: A measure is worse than its threshold; figures and report are kept nevertheless.
        NotPublished: Nothing is served.
    """
    settings, now = load_settings(), datetime.now(UTC)
    served = pin_served(root)
    given = {"root": root, "served": served}
    calls: list[Call] = [
        (probe_served, {**given, "count": settings.probes, "rerank": settings.rerank}),
        (ask_sample, {**given, "rerank": settings.rerank}),
        (count_served, given),
    ]
    # One after the other: a query that runs beside another measurement takes longer.
    probed, sample, counts = run_batches("evaluate", calls, len(calls), in_turn=True)
    keep_history(root, served.version, [*probed["rows"], *sample["rows"], *counts], now=now)
    drift = report_drift(root, probed["misses"], settings.thresholds(), now=now)
    found = {
        "version": served.version,
        "evaluated_at": now.isoformat(),
        "probes": [row for row in (*probed["rows"], *sample["rows"]) if row["low"] is not None],
        "paging": sample["paging"],
        **drift,
    }
    _show(found)
    if found["fallen"]:
        worse = "; ".join(found["fallen"])
        msg = f"{served.version} is worse than its thresholds allow: {worse} ({found['report']})"
        raise EvaluationFell(msg, found)
    return found


def _show(found: dict[str, Any]) -> None:
    """Put the figures that a person looks for first on the run's page."""
    verdict = found["fallen"] or ["No measure is worse than its thresholds allow."]
    for line in verdict:
        tell(f"{found['version']}: {line}")
    columns = ("probe", "leg", "measure", "value", "before", "verdict")
    figures = markdown_table([{name: row[name] for name in columns} for row in found["drift"]])
    lines = [f"# {found['version']}", *(f"- {visible(line)}" for line in verdict), "", figures, ""]
    text = "\n".join([*lines, f"Report: `{found['report']}` below the root."])
    if on_page():
        told = "The last evaluation's verdict and figures."
        create_markdown_artifact(text, key="skillery-evaluation", description=told)
    title = f"{found['version']} beside the evaluations before it."
    show_table("skillery-drift", found["drift"], title)
    show_table("skillery-probes", found["probes"], f"Seeded probes of {found['version']}, 95 % intervals.")
    show_table("skillery-paging", [_flat(r) for r in found["paging"]], "The sample's requests, by method.")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its intervals, which a table cell cannot hold."""
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items() if k != "ci95"}
