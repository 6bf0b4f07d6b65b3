"""Nights in which an LLM has a hand in typing: what it costs, where it stops, and what is asked again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.settings import Settings, llm_options, load_settings, run_expansion, run_llm
from storage.errors import WrongInput
from storage.root import Root
from storage.state import documents_table, edges_table, nodes_table
from tasks.models.llm.budget import Ceiling, Prices
from tasks.models.llm.errors import LlmDenied
from tasks.models.llm.question import Sampling
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.options import TypingOptions
from tests.support.command import Ask
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer, sorted_out
from tests.support.llm.scripted import says
from tests.support.prefect_page import table

LLM, FALLBACK = "classify-1@small-model", f"{LocalClassifier.name}:fallback"


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
    no_server: None, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch, ask: Ask
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
    assert llm["fallbacks"]["budget"] > 0
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


def test_second_opinions_are_asked_once_counted_and_paid_from_one_account(
    no_server: None, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_CLASSIFIER", "local")
    monkeypatch.setenv("SKILLERY_RISKS", "hybrid")
    no = {"holds": False, "quote": ""}
    server.say = lambda _: json.dumps({"orders": no, "data": no, "later": no})
    monkeypatch.setenv("SKILLERY_LLM_MAX_TOTAL_TOKENS", "0")
    first = night(root, skills)
    told = first["opinions"]
    assert (first["state"], told["asked"], told["unfinished"], told["partial"]) == ("partial", 2, 2, True)
    monkeypatch.delenv("SKILLERY_LLM_MAX_TOTAL_TOKENS")
    second, third = night(root), night(root)
    assert (second["state"], second["opinions"]["asked"], server.requests) == ("complete", 2, 2)
    assert (third["opinions"]["requests"], server.requests, third["published"]) == (0, 2, False)


def test_requests_are_foretold_once_counted_and_paid_from_the_same_account(
    no_server: None, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setenv("SKILLERY_CLASSIFIER", "local")
    monkeypatch.setenv("SKILLERY_EXPAND", "llm")
    monkeypatch.setenv("SKILLERY_LLM_PROMPT_PRICE", "5")
    monkeypatch.setenv("SKILLERY_LLM_MAX_COST", "0")
    server.say = lambda _: json.dumps({"requests": [f"request number {k}" for k in range(5)]})
    first = night(root, skills)
    told = first["expansion"]
    assert (first["state"], told["asked"], told["unfinished"], told["spent"]) == ("partial", 2, 2, True)
    dry = ask("run", "--dry-run", "--root", root).stdout
    assert "questions to the LLM, to foretell requests 2, of 1,400 tokens; cost 0.01" in dry
    monkeypatch.delenv("SKILLERY_LLM_MAX_COST")
    second, third = night(root), night(root)
    told = second["expansion"]
    assert (second["state"], second["published"], third["published"]) == ("complete", True, False)
    assert (told["requests"], told["written"], told["tokens"], server.requests) == (2, 10, 220, 2)
    assert (third["expansion"]["asked"], server.requests) == (0, 2)
    monkeypatch.setenv("SKILLERY_EXPAND", "none")
    assert (night(root)["published"], night(root)["published"]) == (True, False)


def test_a_changed_model_types_anew_and_workers_share_one_limit(
    prefect_server: str, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_BATCH", "3")
    monkeypatch.setenv("SKILLERY_LLM_PROMPT_PRICE", "5")
    server.delay = 0.02
    night(root, skills)
    sent = server.requests
    assert server.most_at_once > 1
    server.most_at_once = 0
    monkeypatch.setenv("SKILLERY_LLM_MODEL", "large-model")
    with one_question_at_once():
        record = night(root)
    assert server.requests == 2 * sent
    assert {"what": "requests", "count": sent} in table(prefect_server, "skillery-llm")
    assert {"what": "llm: cost", "value": record["llm"]["cost"]} in table(prefect_server, "skillery-nightly")
    assert set().union(*typists(root).values()) == {"classify-1@large-model"}
    assert record["published"]
    assert server.most_at_once == 1


@pytest.mark.parametrize("most", [1, 2])
def test_batches_that_ask_at_once_keep_the_limit_together(
    no_server: None, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("tasks.parse.corpus.DOCUMENTS_PER_BATCH", 1)
    for name, value in {"TASK_WORKERS": 2, "LLM_BATCH": 2, "LLM_CONCURRENCY": most}.items():
        monkeypatch.setenv(f"SKILLERY_{name}", str(value))
    server.delay = 0.05
    assert night(root, skills)["state"] == "complete"
    assert (server.most_at_once, server.requests >= 4) == (most, True)


def test_a_server_that_is_down_leaves_all_to_the_local_classifier(
    no_server: None, root: str, skills: Path, server: LlmServer
) -> None:
    server.fault = lambda _: "500"
    record = night(root, skills)
    assert (record["state"], record["published"]) == ("partial", True)
    assert record["llm"]["fallbacks"] == {"unavailable": record["nodes"]}
    assert record["llm"]["unfinished"] == 2


def test_a_server_that_denies_access_ends_the_night_at_once(
    no_server: None, root: str, skills: Path, server: LlmServer
) -> None:
    server.fault = lambda _: "401"
    with pytest.raises(LlmDenied, match="check SKILLERY_LLM_API_KEY"):
        night(root, skills)
    assert server.requests == 1
    assert nodes_table(Root(root)).read().is_empty()


def test_a_night_measures_a_model_before_anything_else_and_only_once(
    no_server: None, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKILLERY_LLM_ACCURACY")
    server.say = says(lambda _text, _true: "example")
    wrong = r"0\.17 of these right, the local classifier 0\.72 \(mistaken: 12 of 12"
    with pytest.raises(WrongInput, match=wrong):
        night(root, skills)
    assert server.requests == 4
    assert not [path for path in Path(root).iterdir() if path.name not in ("models", "state", "answers")]
    assert documents_table(Root(root)).read().is_empty()

    monkeypatch.setenv("SKILLERY_LLM_MODEL", "good-model")
    server.say = says(lambda _text, true: "step" if true == "error_handling" else true)
    first, sent = night(root, skills), server.requests - 4
    llm = first["llm"]
    assert (first["state"], llm["requests"], llm["tokens"]) == ("complete", sent, 110 * sent)
    nodes = nodes_table(Root(root)).read().select("node_type", pl.col("confidence").cast(pl.Float64).round(2))
    found = dict(nodes.unique().iter_rows())
    assert found == {t: 0.56 if t == "step" else 0.95 for t in found}
    assert (night(root)["llm"]["requests"], server.requests) == (0, 4 + sent)


MODEL = "edges-1@small-model"


def next_step(asked: Asked) -> str:
    """Type fragments as the server does; of edges, say that each piece constrains the next step shown."""
    if "kind" not in asked.fragments[0]:
        return sorted_out(asked)
    pieces = asked.fragments
    pairs = [[a["id"], b["id"]] for a, b in pairwise(pieces) if b["kind"] == "step"]
    return json.dumps({"condition": pairs, "reference": []})


@pytest.fixture
def edges_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=next_step, CONCURRENCY=4) as running:
        monkeypatch.setenv("SKILLERY_CLASSIFIER", "local")
        monkeypatch.setenv("SKILLERY_EDGES", "llm")
        yield running


@pytest.mark.slow
def test_conditions_carry_the_models_name_the_next_night_asks_nothing_and_rules_again_infer_all_anew(
    no_server: None, root: str, skills: Path, edges_server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = night(root, skills)
    second = night(root)
    edges = edges_table(Root(root)).read()
    assert set(edges.filter(edge_type="condition")["inferred_by"]) == {MODEL}
    assert set(edges.filter(edge_type="sequence")["inferred_by"]) == {"rules"}
    assert first["llm"]["edges"]["asked"] == edges_server.requests == first["llm"]["requests"]
    assert (second["llm"]["requests"], second["published"]) == (0, False)
    monkeypatch.setenv("SKILLERY_EDGES", "rules")
    night(root)
    assert set(edges_table(Root(root)).read()["inferred_by"]) == {"rules"}


def test_a_ceiling_holds_over_types_and_edges_together(
    no_server: None, root: str, skills: Path, edges_server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_CLASSIFIER", "llm")
    monkeypatch.setenv("SKILLERY_LLM_CONCURRENCY", "1")
    monkeypatch.setenv("SKILLERY_LLM_MAX_TOTAL_TOKENS", "4000")
    edges_server.usage = {"prompt_tokens": 900, "completion_tokens": 50}
    first = night(root, skills)
    assert first["state"] == "partial"
    assert (first["llm"]["tokens"], first["llm"]["spent"]) == (edges_server.requests * 950, True)
    assert first["llm"]["tokens"] <= 4000
    assert sum(first["llm"]["edges"]["fallbacks"].values()) > 0
    monkeypatch.delenv("SKILLERY_LLM_MAX_TOTAL_TOKENS")
    assert night(root)["state"] == "complete"
    assert set(edges_table(Root(root)).read().filter(edge_type="condition")["inferred_by"]) == {MODEL}


SERVER = {"llm_base_url": "http://127.0.0.1:9/v1", "llm_model": "small-model"}


def options(**given: Any) -> TypingOptions:  # noqa: ANN401
    found = llm_options(Settings(**{**SERVER, **given}), "hybrid")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "threshold"),
    [
        ({}, "no model"),
        (SERVER, 0.79),
        ({**SERVER, "classifier": "local"}, "no model"),
        ({**SERVER, "classifier": "llm"}, None),
        ({**SERVER, "classifier": "hybrid", "llm_threshold": 0.0}, 0.0),
        ({**SERVER, "llm_accuracy": 0.9}, 0.9),
    ],
)
def test_a_run_asks_a_model_that_is_set_up_where_the_local_one_is_unsure(
    given: dict[str, Any], threshold: float | str | None
) -> None:
    found = run_llm(Settings(**given))
    assert (found.threshold if found else "no model") == threshold


def test_requests_are_foretold_for_the_default_encoder_alone_which_is_told_before_a_run_begins() -> None:
    given = {**SERVER, "expand": "llm"}
    assert run_expansion(Settings(**SERVER)) is None
    assert run_expansion(Settings(**given)) is not None
    with pytest.raises(WrongInput, match=r"SKILLERY_EXPAND=llm: .* the default encoder alone"):
        run_expansion(Settings(**given, encoder="BAAI/bge-m3"))


def test_settings_reach_the_client() -> None:
    found = options(
        llm_timeout=7, llm_concurrency=2, llm_batch=5, llm_max_tokens=99, llm_temperature=0.3, llm_seed=4,
        llm_max_total_tokens=1_000, llm_max_cost=2.5, llm_prompt_price=1.5, llm_completion_price=6,
        retry_wait_max=3,
    )  # fmt: skip
    assert (found.endpoint.timeout, found.endpoint.concurrency, found.batch) == (7, 2, 5)
    assert found.endpoint.retry.wait_max == 3
    assert found.sampling == Sampling(0.3, 4, 99)
    assert (found.prices, found.ceiling) == (Prices(1.5, 6), Ceiling(1_000, 2.5))


def test_a_context_that_holds_no_question_beside_an_answer_is_refused() -> None:
    with pytest.raises(WrongInput, match=r"SKILLERY_LLM_CONTEXT=1024 .* SKILLERY_LLM_MAX_TOKENS=1024"):
        options(llm_context=1024)
    assert options(llm_context=1025).endpoint.context == 1025


def test_the_key_is_sent_and_never_shown_and_no_crawl_is_handed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_LLM_API_KEY", "sk-hush")
    monkeypatch.setenv("SKILLERY_REQUEST_DELAY", "0.25")
    settings = load_settings()
    assert "sk-hush" not in f"{settings!r} {settings.model_dump_json()}"
    found = llm_options(settings.model_copy(update=SERVER), "llm")
    assert found is not None
    assert found.endpoint.api_key == "sk-hush"
    assert "sk-hush" not in repr(found)
    crawl = settings.crawl()
    assert crawl.request_delay == 0.25
    assert not hasattr(crawl, "llm_api_key")


def test_half_an_endpoint_or_one_without_the_package_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given in ({"llm_model": "m"}, {"llm_base_url": SERVER["llm_base_url"]}, {"classifier": "llm"}):
        with pytest.raises(WrongInput, match="SKILLERY_LLM_BASE_URL"):
            run_llm(Settings.model_validate(given))
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(WrongInput, match=r"pip install '\.\[llm\]'"):
        options()
