"""`skillery bench compose`: requests of several steps that an LLM writes about what a root serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.evaluate.generate.plans import DIFFICULTIES, plan_words
from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked
from tests.support.roots.kitchen_servers import serve_kitchen
from tests.support.roots.skill_root import Export, SkillRoot


@pytest.fixture
def root(served_bakery: SkillRoot) -> str:
    return served_bakery.root.uri


@pytest.fixture
def kitchen(tmp_path: Path, minilm_export: Export, monkeypatch: pytest.MonkeyPatch) -> str:
    """A root of servers whose sections are taken for categories of the paper."""
    words = plan_words()
    words["categories"] = dict.fromkeys(("Baking", "Drinks"), "databases") | dict.fromkeys(
        ("Shopping", "Messages"), "security"
    )
    monkeypatch.setattr("flows.commands.generate.plan_words", lambda: words)
    monkeypatch.setattr("tasks.evaluate.generate.plans._FEWEST_ROWS", 4)
    monkeypatch.setattr("tasks.evaluate.generate.plans.DIFFICULTIES", dict.fromkeys(DIFFICULTIES, (2,)))
    return serve_kitchen(tmp_path / "kitchen", minilm_export).root.uri


def say(asked: Asked) -> str:
    (record,) = asked.fragments
    if "services" in record:
        names = [service["name"] for service in record["services"]]
        return json.dumps({"query": f"Use {' and '.join(names)}.", "needs": names})
    return json.dumps({"steps": ["one", "two"]})


def test_a_bench_that_a_model_writes_is_counted_and_can_be_measured(
    root: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b"
    given = ["bench", "compose", "--queries", "8", "--out", str(out), "--root", root]
    with llm_set_up(monkeypatch, say=say):
        found = json.loads(ask(*given, "--json").stdout)
        printed = ask(*given)
    rows = lines_of(out / "requests.jsonl")
    held = json.loads((out / "bench.json").read_text("utf-8"))
    assert held == {key: found[key] for key in found if key not in ("out", "llm")}
    assert found["queries"] == len(rows) == 4  # of two steps, as many as the model lists
    assert found["discarded"] == {"steps": 3}  # no four skills make a request of five
    assert "discarded: steps 3" in printed.stdout
    assert printed.stdout.count("0 requests") == 1
    done = ask("evaluate", "compose", "--root", root, "--queries", str(out / "requests.jsonl"), "--json")
    assert json.loads(done.stdout)["queries"] == len(rows)


def test_too_little_is_said_in_a_line(
    root: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--queries", "300", "--out", str(tmp_path / "b"), "--root", root]
    with llm_set_up(monkeypatch, say=lambda _: '{"query": "Use it.", "needs": ["a", "b"]}'):
        done = ask("bench", "compose", *given, "--seed", "3")
    assert done.code == 0, done.stderr
    assert "rows used: " in done.stdout


def test_the_papers_way_asks_a_model_for_paraphrases_alone(
    kitchen: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b"
    given = ["bench", "compose", "--queries", "6", "--templates", "--out", str(out), "--root", kitchen]
    found = json.loads(ask(*given, "--json").stdout)
    assert (found["llm"], found["by_tag"]) == (None, {"chain": found["queries"]})
    with llm_set_up(monkeypatch, say=lambda _: '{"query": "In other words."}'):
        ask(*given, "--paraphrases", "2")
    rows = lines_of(out / "requests.jsonl")
    assert [row.get("paraphrase") for row in rows].count("In other words.") == 2
    options = ["--queries", str(out / "requests.jsonl"), "--categories", str(out / "categories.json")]
    done = ask("evaluate", "compose", "--root", kitchen, *options, "--method", "local-compose", "--json")
    assert json.loads(done.stdout)["queries"] == len(rows) == 6


@pytest.mark.parametrize(
    ("option", "said"), [([], "SKILLERY_LLM_BASE_URL"), (["--llm"], "--llm of `bench compose` was deleted")]
)
def test_without_an_endpoint_nothing_is_written(
    root: str, tmp_path: Path, ask: Ask, option: list[str], said: str
) -> None:
    done = ask("bench", "compose", *option, "--out", str(tmp_path / "b"), "--root", root)
    assert (done.code, said in done.stderr, len(done.stderr.splitlines())) == (2, True, 1)
    assert not (tmp_path / "b").exists()
