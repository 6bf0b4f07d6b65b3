"""Prefect shells of evaluate: probes of the served tables, the sample's requests, history, drift."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.lance.served import Served, require_served
from storage.root import Root
from tasks.evaluate.health.as_served import (
    ask_logged,
    ask_probes,
    page_sample,
    paging_rows,
    route_sample,
    sample_requests,
)
from tasks.evaluate.health.drift import Thresholds, drift_of, drift_rows, shortcomings, unasked
from tasks.evaluate.health.history import append_history, count_rows, dropped_of, read_history
from tasks.evaluate.health.probes import logged_probes, probe_index, served_probes
from tasks.evaluate.health.regression import check_regression
from tasks.evaluate.health.report import pictures_of, render_report, write_report
from tasks.models.encoder import load_encoder
from tasks.models.retry import task_retries
from tasks.retrieve.index.build import Built
from tasks.retrieve.index.gate import check_words
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.shells import made_by
from tasks.retrieve.versions.publish import candidate


@task(name="read-served", cache_policy=NO_CACHE)
def pin_served(root: str) -> Served:
    """Return what is served now: all of an evaluation is of this version."""
    return require_served(Root(root))


@task(name="probe-served", cache_policy=NO_CACHE, **task_retries())
def probe_served(root: str, served: Served, *, count: int, rerank: str) -> dict[str, Any]:
    """Probe each leg of a version, and ask it as users do; return the history's rows, and what was missed."""
    place = Root(root)
    encoder = load_encoder(str(place.fetch(served.model["path"])))
    probes = served_probes(place, served, count=count)
    index = _index(place, served, rerank)
    asked, shown = ask_probes(index, probes), served.skills_table(place).frame(["doc_id"])["doc_id"]
    logged = ask_logged(index, logged_probes(place, {*shown}, count=count))
    rows = [*probe_index(place, served, probes, encoder=encoder), *asked.rows, *logged]
    return {"rows": rows, "misses": asked.misses}


@task(name="ask-sample", cache_policy=NO_CACHE)
def ask_sample(root: str, served: Served, *, rerank: str) -> dict[str, list[dict[str, Any]]]:
    """Ask the sample's requests where its skills are served."""
    index = _index(Root(root), served, rerank)
    requests = sample_requests(index)
    if not requests:
        return {"paging": [], "rows": []}
    paging = page_sample(index, requests)
    return {"paging": paging, "rows": [*route_sample(index, requests), *paging_rows(paging)]}


@task(name="count-served", cache_policy=NO_CACHE)
def count_served(root: str, served: Served) -> list[dict[str, Any]]:
    """Count size, drop reasons and mixes of a version; return rows of the history."""
    return count_rows(Root(root), served, dropped_of(Root(root), served))


@task(name="keep-history", cache_policy=NO_CACHE)
def keep_history(root: str, version: str, rows: list[dict[str, Any]], *, now: datetime) -> str:
    """Add the figures to the evaluation history; return its file."""
    return append_history(Root(root), version, rows, now=now)


@task(name="report-drift", cache_policy=NO_CACHE)
def report_drift(
    root: str, misses: list[dict[str, Any]], thresholds: dict[str, Any], *, now: datetime
) -> dict[str, Any]:
    """Compare the evaluation of `now` with others, write the report; return what fell, drift and report."""
    limits, history = Thresholds(**thresholds), read_history(Root(root))
    drifts = drift_of(history, now, compared=limits.compared)
    fallen = [*unasked(history, now, compared=limits.compared), *shortcomings(drifts, limits)]
    page = render_report(
        history, now, drifts, fallen, misses, pictures_of(history, now), compared=limits.compared
    )
    return {"fallen": fallen, "drift": drift_rows(drifts), "report": write_report(Root(root), page)}


def _index(root: Root, served: Served, rerank: str) -> ServedIndex:
    encoder = served.model["name"]
    return ServedIndex(root, encoder=encoder, pinned=served, rerank=rerank)


@task(name="compare-with-served", cache_policy=NO_CACHE, **task_retries())
def compare_with_served(
    root: str, built: dict[str, Any], encoder: str, probes: dict[str, Any], *,
    run_id: str, now: datetime, corpus: str | None = None, workers: int | None = 1,
) -> list[dict[str, Any]]:  # fmt: skip
    """Check that words find skills, and that no leg finds less than what is served; `probes` are settings."""
    place, found = Root(root), Built(**built)
    new = candidate(place, found, **made_by(root, encoder), run_id=run_id, now=now)
    given = {"encoder": load_encoder(encoder), "corpus": Root(corpus or root), "workers": workers, **probes}
    checks = check_words(place, new, workers)
    if all(check.passed for check in checks):
        checks += check_regression(place, new, **given)
    return [asdict(check) for check in checks]
