"""`skillery evaluate compose` with a language model set up: its methods are measured, and accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.evaluate.compose.methods import METHODS, NEED_BODIES, NEED_ENDPOINT
from tests.support.command import Ask
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import plans
from tests.support.roots.kitchen_servers import LIST, REQUESTS


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=plans, MODEL=request.node.name) as running:
        yield running


def test_methods_of_a_model_are_measured_and_its_questions_counted(
    llm: LlmServer, kitchen: tuple[str, str], ask: Ask
) -> None:
    root, queries = kitchen
    asked = ["evaluate", "compose", "--corpus", root, "--queries", queries, "--json"]
    chosen = [word for name in ("llm-r1", "llm-direct") for word in ("--method", name)]
    found = json.loads(ask(*asked, *chosen).stdout)
    sent = llm.requests
    again = json.loads(ask(*asked, *chosen).stdout)
    without = json.loads(ask(*asked, "--method", "gold-steps").stdout)
    assert [row["method"] for row in found["methods"]] == ["llm-r1", "llm-direct", "commas"]
    assert found["methods"][0]["da"] == 1
    assert (found["llm"]["requests"], found["llm"]["fallbacks"]) == (sent, {})
    assert (again["llm"]["requests"], llm.requests) == (0, sent)
    assert without["llm"] is None


def test_answers_outlive_the_root_in_which_a_file_is_served(
    llm: LlmServer, kitchen: tuple[str, str], ask: Ask, tmp_path: Path
) -> None:
    root, queries = kitchen
    (tmp_path / "servers.md").write_text(LIST, "utf-8")
    asked = ["evaluate", "compose", "--corpus", str(tmp_path / "servers.md"), "--root", root]
    for _ in range(2):
        assert ask(*asked, "--queries", queries, "--method", "llm-r0", "--json").code == 0
    assert llm.requests == len(REQUESTS) + 1  # and one paraphrase


def test_what_the_model_did_not_answer_is_said(llm: LlmServer, kitchen: tuple[str, str], ask: Ask) -> None:
    root, queries = kitchen
    llm.fault = lambda _: "refused"
    asked = ["evaluate", "compose", "--corpus", root, "--queries", queries, "--method", "llm-r1"]
    done = ask(*asked, "--json")
    llm.fault = lambda _: "404"
    denied = ask(*asked, "--method", "react")
    assert json.loads(done.stdout)["llm"]["fallbacks"] == {"compose-steps-1: refused": 6}
    assert "6 x compose-steps-1: refused" in done.stderr
    assert denied.code == 1
    assert "SKILLERY_LLM_MODEL" in denied.stderr


def test_a_report_measures_the_model_s_methods_beside_the_paper_s(
    llm: LlmServer, kitchen: tuple[str, str], ask: Ask, tmp_path: Path
) -> None:
    root, queries = kitchen
    done = ask("evaluate", "compose", "--corpus", root, "--queries", queries, "--report", str(tmp_path / "r"))
    assert done.code == 0, done.stderr
    found = json.loads((tmp_path / "r" / "compose.json").read_text("utf-8"))
    text = (tmp_path / "r" / "compose.md").read_text("utf-8")
    assert {row["method"] for row in found["methods"]} == {*METHODS, *NEED_ENDPOINT} - NEED_BODIES
    assert "The language model was test_a_report" in text
    assert "| no endpoint" not in text
    assert "| 15 | `paper` |" in text
    assert [row["method"] for row in found["rounds"]][4:] == ["paper-r0", "paper", "paper-r2", "paper-r3"]
    assert found["feedback_llm"]["tests"].keys() == found["feedback"]["tests"].keys()
