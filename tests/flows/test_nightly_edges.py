"""Nights in which an LLM infers edges: attributed, paid for once, and asked about by batches at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from storage.root import Root
from storage.state import edges_table
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer, sorted_out

pytestmark = pytest.mark.prefect
MODEL = "edges-1@small-model"


def next_step(asked: Asked) -> str:
    """Type fragments as the server does; of edges, say that each piece constrains the next step shown."""
    if "kind" not in asked.fragments[0]:
        return sorted_out(asked)
    pieces = asked.fragments
    pairs = [[a["id"], b["id"]] for a, b in pairwise(pieces) if b["kind"] == "step"]
    return json.dumps({"condition": pairs, "reference": []})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=next_step, CONCURRENCY=4) as running:
        monkeypatch.setenv("SKILLERY_CLASSIFIER", "local")
        monkeypatch.setenv("SKILLERY_EDGES", "llm")
        yield running


def night(root: str, *sources: Path) -> dict[str, Any]:
    from flows.nightly import nightly

    return nightly(root, [f"dir:{source}" for source in sources] or None)


def test_conditions_carry_the_models_name_and_the_next_night_asks_nothing(
    prefect_server: str, root: str, skills: Path, server: LlmServer
) -> None:
    first = night(root, skills)
    second = night(root)

    edges = edges_table(Root(root)).read()
    assert set(edges.filter(edge_type="condition")["inferred_by"]) == {MODEL}
    assert set(edges.filter(edge_type="sequence")["inferred_by"]) == {"rules"}
    assert first["llm"]["edges"]["asked"] == server.requests == first["llm"]["requests"]
    assert (second["llm"]["requests"], second["published"]) == (0, False)


def test_rules_again_after_a_model_infer_all_anew(
    prefect_server: str, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(root, skills)
    monkeypatch.setenv("SKILLERY_EDGES", "rules")
    night(root)

    assert set(edges_table(Root(root)).read()["inferred_by"]) == {"rules"}


def test_a_ceiling_holds_over_types_and_edges_together(
    prefect_server: str, root: str, skills: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_CLASSIFIER", "llm")
    monkeypatch.setenv("SKILLERY_LLM_CONCURRENCY", "1")
    monkeypatch.setenv("SKILLERY_LLM_MAX_TOTAL_TOKENS", "4000")
    server.usage = {"prompt_tokens": 900, "completion_tokens": 50}

    first = night(root, skills)

    assert first["state"] == "partial"
    assert (first["llm"]["tokens"], first["llm"]["spent"]) == (server.requests * 950, True)
    assert first["llm"]["tokens"] <= 4000
    assert sum(first["llm"]["edges"]["fallbacks"].values()) > 0
    monkeypatch.delenv("SKILLERY_LLM_MAX_TOTAL_TOKENS")
    assert night(root)["state"] == "complete"
    assert set(edges_table(Root(root)).read().filter(edge_type="condition")["inferred_by"]) == {MODEL}


def test_batches_ask_at_once_and_keep_the_limit_together(
    prefect_server: str, root: str, tmp_path: Path, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_TASK_WORKERS", "2")
    for k in range(220):  # three batches
        (tmp_path / f"shelf/knob-{k}").mkdir(parents=True)
        head = f"---\nname: knob-{k}\ndescription: Turns knob {k}.\n---\n"
        text = f"{head}You must wear gloves {k}.\n\n1. Turn {k}.\n"
        (tmp_path / f"shelf/knob-{k}/SKILL.md").write_text(text, "utf-8")
    server.delay = 0.03

    record = night(root, tmp_path / "shelf")

    assert record["state"] == "complete"
    assert record["llm"]["requests"] == server.requests == 220
    assert 2 < server.most_at_once <= 4
