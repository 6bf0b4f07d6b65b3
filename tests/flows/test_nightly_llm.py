"""Nights in which an LLM has a hand in typing: what it costs, where it stops, and what is asked again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from storage.root import Root
from storage.state import nodes_table
from tasks.models.llm.errors import LlmDenied
from tasks.parse.classify.cascade import CascadeClassifier
from tests.support.command import Ask
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import LlmServer

pytestmark = pytest.mark.prefect
LLM, FALLBACK = "classify-1@small-model", f"{CascadeClassifier.name}:fallback"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, THRESHOLD=1) as running:
        yield running


def night(root: str, *sources: Path) -> dict[str, Any]:
    from flows.nightly import nightly

    return nightly(root, [f"dir:{source}" for source in sources] or None)


def typists(root: str) -> dict[str, set[str]]:
    """Return the classifiers of each document's nodes."""
    rows = nodes_table(Root(root)).read(columns=["doc_id", "classifier"]).unique()
    return {doc_id: set(own["classifier"]) for (doc_id,), own in rows.group_by("doc_id")}


def artifact(key: str) -> list[dict[str, Any]]:
    from prefect.client.orchestration import get_client

    wanted = {"artifacts": {"key": {"any_": [key]}}, "sort": "UPDATED_DESC", "limit": 1}
    with get_client(sync_client=True) as client:
        rows: list[dict[str, Any]] = json.loads(
            client.request("POST", "/artifacts/filter", json=wanted).json()[0]["data"]
        )
    return rows


@contextmanager
def one_question_at_once() -> Iterator[None]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

    with get_client(sync_client=True) as client:
        limit = GlobalConcurrencyLimitCreate(name="skillery-llm", limit=1, active=True)
        client.create_global_concurrency_limit(limit)
        yield
        client.delete_global_concurrency_limit_by_name("skillery-llm")


def test_a_night_that_ran_out_of_budget_is_partial_and_the_next_asks_for_the_rest(
    prefect_server: str, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_MAX_TOTAL_TOKENS", "2500")
    monkeypatch.setenv("SKILLERY_LLM_CONCURRENCY", "1")
    monkeypatch.setenv("SKILLERY_LLM_PROMPT_PRICE", "5")
    server.usage = {"prompt_tokens": 900, "completion_tokens": 50}
    first = night(root, skills)
    assert (first["state"], first["published"], server.requests) == ("partial", True, 1)
    llm = first["llm"]
    assert (llm["requests"], llm["tokens"], llm["cost"], llm["spent"]) == (1, 950, 0.0045, True)
    assert (llm["asked"], llm["unfinished"]) == (first["nodes"], 1)
    assert sorted(map(sorted, typists(root).values())) == [[LLM], [FALLBACK]]
    assert {"what": "fallbacks: budget", "count": llm["fallbacks"]["budget"]} in artifact("skillery-llm")
    assert {"what": "llm: cost", "value": 0.0045} in artifact("skillery-nightly")
    late = next(doc_id for doc_id, names in typists(root).items() if names == {FALLBACK})

    monkeypatch.setenv("SKILLERY_LLM_MAX_TOTAL_TOKENS", "100000")
    second = night(root)
    assert (second["state"], second["published"], server.requests) == ("complete", True, 2)
    assert second["llm"]["asked"] == nodes_table(Root(root)).read().filter(doc_id=late).height
    assert Counter(map(frozenset, typists(root).values())) == {frozenset({LLM}): 2}
    assert set(nodes_table(Root(root)).read()["confidence"].cast(pl.Float64).round(4)) == {0.79}

    third = night(root)
    assert (third["state"], third["published"], server.requests) == ("complete", False, 2)
    assert (third["llm"]["asked"], third["llm"]["cost"]) == (0, 0.0)

    done = ask("forget", late, "--yes", "--root", root, "--json")
    assert '"state/answers": 1' in done.stdout


def test_a_changed_model_types_anew_and_workers_share_one_limit(
    prefect_server: str, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_BATCH", "3")
    server.delay = 0.02
    night(root, skills)
    sent = server.requests
    assert server.most_at_once > 1
    server.most_at_once = 0
    monkeypatch.setenv("SKILLERY_LLM_MODEL", "large-model")
    with one_question_at_once():
        record = night(root)
    assert server.requests == 2 * sent
    assert set().union(*typists(root).values()) == {"classify-1@large-model"}
    assert record["published"]
    assert server.most_at_once == 1


def test_a_server_that_is_down_leaves_all_to_the_local_classifier(
    prefect_server: str, root: str, skills: Path, server: LlmServer
) -> None:
    server.fault = lambda _: "500"
    record = night(root, skills)
    assert (record["state"], record["published"]) == ("partial", True)
    assert record["llm"]["fallbacks"] == {"unavailable": record["nodes"]}
    assert record["llm"]["unfinished"] == 2


def test_a_server_that_denies_access_ends_the_night_at_once(
    prefect_server: str, root: str, skills: Path, server: LlmServer
) -> None:
    server.fault = lambda _: "401"
    with pytest.raises(LlmDenied, match="check SKILLERY_LLM_API_KEY"):
        night(root, skills)
    assert server.requests == 1
    assert nodes_table(Root(root)).read().is_empty()
