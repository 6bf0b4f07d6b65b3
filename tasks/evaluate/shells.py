"""Evaluation's Prefect tasks: probes of the served tables, the sample's requests, the history."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from storage.served import require_served
from tasks.evaluate.health import probe_index
from tasks.evaluate.history import append_history
from tasks.evaluate.sample import page_sample, route_sample, sample_requests
from tasks.models.encoder import load_encoder
from tasks.parse.local import LocalClassifier
from tasks.retrieve.served_index import ServedIndex


@task(name="probe-served", cache_policy=NO_CACHE)
def probe_served(root: str, *, count: int) -> dict[str, Any]:
    """Probe each leg on the version served now; return the version and the rows."""
    place = Root(root)
    served = require_served(place)
    encoder = load_encoder(place.at(served.model["path"]))
    return {
        "version": served.version,
        "probes": probe_index(place, served, encoder=encoder, count=count),
    }


@task(name="ask-sample", cache_policy=NO_CACHE)
def ask_sample(root: str, encoder: str) -> dict[str, list[dict[str, Any]]]:
    """Ask the sample's requests where its skills are served."""
    index = ServedIndex(Root(root), encoder=encoder, classifier=LocalClassifier)
    requests = sample_requests(index)
    if not requests:
        return {"paging": [], "probes": []}
    return {"paging": page_sample(index, requests), "probes": route_sample(index, requests)}


@task(name="keep-history", cache_policy=NO_CACHE)
def keep_history(root: str, version: str, probes: list[dict[str, Any]], *, now: datetime) -> str:
    """Add the figures to the evaluation history; return its file."""
    return append_history(Root(root), version, probes, now=now)
