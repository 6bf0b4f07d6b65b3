"""Pages of how the corpus is kept: its sources, and the report of its nights."""

from __future__ import annotations

from flows.serve.answers.service import Service
from flows.serve.catalogue.rendering import render
from storage.state import read_runs

_RUNS = 30  # the newest, that the report lists
EVALUATION = "reports/evaluation.html"


def sources_page(service: Service) -> str:
    """Return the page of all sources with their state; raises `StorageError` if a file cannot be read."""
    from flows.commands.operate import source_rows  # noqa: PLC0415 (answers do without what it loads)

    return render("sources.html", sources=source_rows(service.root))


def report_page(service: Service) -> str:
    """Return the report of the last night, and a row for each of the runs before it; raises as above."""
    from flows.commands.operate import root_status  # noqa: PLC0415 (answers do without what it loads)

    runs = [{"flow": "nightly", **run} for run in read_runs(service.root, _RUNS)]
    night = next((run for run in runs if run["flow"] == "nightly"), None)
    evaluated = service.root.exists(EVALUATION)
    return render(
        "report.html", status=root_status(service.root), night=night, runs=runs, evaluated=evaluated
    )
