"""`skillery bench compose`: requests of several steps out of what a root serves, which can be measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked
from tests.support.roots.skill_root import SkillRoot


@pytest.fixture
def root(served_bakery: SkillRoot) -> str:
    return served_bakery.root.uri


def test_a_bench_of_skills_has_the_same_bytes_again_and_can_be_measured(
    root: str, tmp_path: Path, ask: Ask
) -> None:
    given = ["--queries", "4", "--seed", "42", "--root", root]
    one, other = tmp_path / "one", tmp_path / "other"

    found = json.loads(ask("bench", "compose", *given, "--out", str(one), "--json").stdout)
    ask("bench", "compose", *given, "--out", str(other))

    for name in ("requests.jsonl", "bench.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    rows = lines_of(one / "requests.jsonl")
    assert found["queries"] == len(rows) > 0
    assert json.loads((one / "bench.json").read_text("utf-8")) == {k: found[k] for k in found if k != "out"}
    for row in rows:
        assert all(row["query"][a:b] for step in row["steps"] for a, b in step["spans"])
    done = ask("evaluate", "compose", "--root", root, "--queries", str(one / "requests.jsonl"), "--json")
    assert json.loads(done.stdout)["queries"] == len(rows)


def test_too_little_is_said_in_a_line(root: str, tmp_path: Path, ask: Ask) -> None:
    done = ask("bench", "compose", "--queries", "300", "--out", str(tmp_path / "b"), "--root", root)

    assert done.code == 0, done.stderr
    assert "too little is served for more: 300 were wanted" in done.stdout
    assert "left out: " in done.stdout


def test_without_an_endpoint_nothing_is_written(root: str, tmp_path: Path, ask: Ask) -> None:
    done = ask("bench", "compose", "--llm", "--out", str(tmp_path / "b"), "--root", root)

    assert (done.code, "SKILLERY_LLM_BASE_URL" in done.stderr) == (2, True)
    assert not (tmp_path / "b").exists()


def test_a_model_rewrites_and_is_counted(
    root: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(asked: Asked) -> str:
        (record,) = asked.fragments
        if "things" in record:
            return json.dumps({"query": f"Well: {record['request']}"})
        return json.dumps({"steps": ["one", "two"]})

    out = tmp_path / "b"
    with llm_set_up(monkeypatch, say=say):
        given = ["bench", "compose", "--queries", "4", "--out", str(out), "--root", root, "--llm"]
        found = json.loads(ask(*given, "--json").stdout)
        printed = ask(*given)

    rows = lines_of(out / "requests.jsonl")
    assert found["rewritten"] == sum(row["query"].startswith("Well: ") for row in rows) > 0
    assert found["rewritten"] + sum(found["discarded"].values()) == len(rows)
    assert f"rewritten: {found['rewritten']}" in printed.stdout
    assert printed.stdout.count("0 requests") == 1
