"""`skillery compose` with a language model: who took a task apart, what is asked, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import MAIN, Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import plans, record_of
from tests.support.roots.skill_root import SkillRoot

TASK = "Bake a loaf of wheat bread with yeast, and then brew a pot of green tea."


@pytest.fixture
def root(served_bakery: SkillRoot) -> str:
    return served_bakery.root.uri


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[LlmServer]:
    """A model of each test's own name, because answers are kept in a root that tests share."""
    with llm_set_up(monkeypatch, say=plans, MODEL=request.node.name) as running:
        yield running


def test_a_plan_names_the_model_that_took_the_task_apart(llm: LlmServer, root: str, ask: Ask) -> None:
    asked = ["compose", TASK, "--root", root, "--json"]
    plan = json.loads(ask(*asked, "--decomposer", "llm").stdout)
    sent = llm.requests
    llm.say = lambda _: '{"best": 2}'
    again = json.loads(ask(*asked, "--decomposer", "llm", "--rerank").stdout)
    assert plan["decomposer"].startswith("llm:test_a_plan_names")
    assert [step["text"] for step in plan["steps"]] == [
        "Bake a loaf of wheat bread with yeast", "brew a pot of green tea",
    ]  # fmt: skip
    for before, after in zip(plan["steps"], again["steps"], strict=True):
        assert after["candidates"][0]["doc_id"] == before["candidates"][1]["doc_id"]
    reranked = llm.asked[sent:]
    assert ["candidates" in record_of(one) for one in reranked] == [True] * len(plan["steps"])
    assert plan.keys() == again.keys() == json.loads(ask(*asked).stdout).keys()
    assert llm.requests == sent + len(reranked)  # by default nothing is asked
    ask(*asked, "--decomposer", "paper")
    assert record_of(llm.asked[-1]).keys() <= {"query", "hint_list"}  # SkillWeaver's words (appendix F)


def test_a_model_that_gives_no_answer_leaves_the_local_plan_and_is_told_of(
    llm: LlmServer, root: str, ask: Ask
) -> None:
    llm.fault = lambda _: "refused"
    done = ask("compose", TASK, "--root", root, "--decomposer", "llm", "--rerank", "--json")
    plan, local = json.loads(done.stdout), json.loads(ask("compose", TASK, "--root", root, "--json").stdout)
    assert (done.code, plan["decomposer"], local["decomposer"]) == (0, "local:fallback", "local")
    assert plan["steps"] == local["steps"]
    assert len(done.stderr.splitlines()) == 1
    assert "1 x compose-steps-1: refused" in done.stderr


def test_a_server_that_denies_ends_with_1(
    llm: LlmServer, root: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_API_KEY", "sk-hush")
    llm.fault = lambda _: "401"
    (tmp_path / "q.jsonl").write_text(json.dumps({"query": TASK}) + "\n", "utf-8")
    batch = ["--batch", str(tmp_path / "q.jsonl"), "--out", str(tmp_path / "r.jsonl")]
    for what in ([TASK], batch):
        done = ask("compose", *what, "--root", root, "--decomposer", "llm")
        assert (done.code, done.stdout) == (1, "")
        assert "SKILLERY_LLM_API_KEY" in done.stderr
        assert "sk-hush" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--decomposer", "llm"], ["--decomposer", "hybrid"], ["--rerank"]], ids=" ".join
)
def test_without_a_model_set_up_one_line_says_what_to_set(root: str, ask: Ask, arguments: list[str]) -> None:
    done = ask("compose", TASK, "--root", root, *arguments)
    assert (done.code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "SKILLERY_LLM_BASE_URL" in done.stderr
    assert "SKILLERY_LLM_MODEL" in done.stderr


def test_a_decomposer_that_is_not_known_is_named(root: str, ask: Ask) -> None:
    done = ask("compose", TASK, "--root", root, "--decomposer", "best")
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "--decomposer 'best' is not known: choose one of local, llm, hybrid, paper" in done.stderr


def test_hybrid_asks_as_its_setting_says(
    llm: LlmServer, root: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["compose", TASK, "--root", root, "--decomposer", "hybrid", "--json"]
    monkeypatch.setenv("SKILLERY_COMPOSE_CERTAINTY", "0")
    assert json.loads(ask(*asked).stdout)["decomposer"] == "local"
    assert llm.requests == 0
    monkeypatch.setenv("SKILLERY_COMPOSE_CERTAINTY", "1")
    assert json.loads(ask(*asked).stdout)["decomposer"].startswith("llm:")


def test_a_ceiling_holds_for_a_whole_batch(
    llm: LlmServer, root: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_LLM_MAX_TOTAL_TOKENS", "1900")
    batch = batch_of(tmp_path, 4)
    done = ask("compose", *batch, "--root", root, "--decomposer", "llm")
    by = Counter(row["decomposer"].partition(":")[0] for row in lines_of(tmp_path / "r.jsonl"))
    assert done.code == 0
    assert by["local"]
    assert by["llm"]
    assert "compose-steps-1: budget" in done.stderr


def batch_of(folder: Path, tasks: int) -> list[str]:
    """Write a file of tasks, and return the options that name it."""
    lines = [{"query_id": n, "query": f"Bake {n} loaves of bread, and then brew tea."} for n in range(tasks)]
    (folder / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return ["--batch", str(folder / "q.jsonl"), "--out", str(folder / "r.jsonl")]


@pytest.mark.slow
def test_a_killed_batch_asks_nothing_twice(llm: LlmServer, root: str, tmp_path: Path) -> None:
    command = [*MAIN, "compose", *batch_of(tmp_path, 6), "--root", root, "--decomposer", "llm", "--rerank"]
    llm.delay = 0.05
    killed = subprocess.Popen(command, env={**os.environ}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while llm.requests < 8 and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    struck = llm.requests
    assert not (tmp_path / "r.jsonl").exists()
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = lines_of(tmp_path / "r.jsonl")
    assert [row["query_id"] for row in rows] == list(range(6))
    assert all(row["decomposer"].startswith("llm:") for row in rows)
    asked = Counter(one.key for one in llm.asked)
    assert struck < llm.requests
    # At most the question under way when the process died was not kept.
    assert sum(asked.values()) - len(asked) <= 1
