"""Evaluate: does what is served still find what is certainly there?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow

from flows.artifacts import show_table
from flows.settings import load_settings
from tasks.evaluate.shells import ask_sample, keep_history, probe_served


@flow(name="evaluate", flow_run_name="evaluate {root}")
def evaluate(root: str = "data") -> dict[str, Any]:
    """Evaluate the version served: seeded probes of each leg, and the sample's requests where they fit.

    Args:
        root: Folder of all that Skillery keeps.
    """
    settings = load_settings()
    probed = probe_served(root, count=settings.probes)
    sample = ask_sample(root, settings.encoder)
    probes = probed["probes"] + sample["probes"]
    keep_history(root, probed["version"], probes, now=datetime.now(UTC))
    show_table("skillery-probes", probes, f"Seeded probes of {probed['version']}, 95 % intervals.")
    show_table("skillery-paging", [_flat(r) for r in sample["paging"]], "The sample's requests, by method.")
    return {"version": probed["version"], "probes": probes, "paging": sample["paging"]}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its intervals, which a table cell cannot hold."""
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items() if k != "ci95"}
