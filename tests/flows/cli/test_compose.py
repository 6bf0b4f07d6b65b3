"""`skillery compose`: a plan for a person, as JSON, and for a file of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Ask, lines_of
from tests.support.roots.skill_root import SkillRoot

TASK = "Bake a loaf of wheat bread with yeast, and then brew a pot of green tea."
KEYS = {
    "query", "decomposer", "rounds", "converged", "steps", "edges", "groups", "left_out", "tokens",
    "index_version", "took_ms",
}  # fmt: skip


@pytest.fixture
def root(served_bakery: SkillRoot) -> str:
    return str(served_bakery.root.folder)


def test_a_person_reads_a_numbered_list(root: str, ask: Ask) -> None:
    done = ask("compose", TASK, "--root", root)

    assert done.code == 0, done.stderr
    assert done.stdout.startswith(" 1. ")
    assert "local/market/bread" in done.stdout
    assert "tokens" in done.stdout.splitlines()[-1]


def test_json_has_the_keys_of_the_contract(root: str, ask: Ask) -> None:
    plan = json.loads(ask("compose", TASK, "--root", root, "--json").stdout)

    assert set(plan) == KEYS
    assert set(plan["steps"][0]) == {
        "step", "text", "spans", "doc_id", "name", "category", "gap", "confidence", "group", "after",
        "condition", "candidates",
    }  # fmt: skip


def test_a_file_of_tasks_is_answered_in_order(root: str, ask: Ask, tmp_path: Path) -> None:
    tasks = [{"query_id": "a", "query": TASK}, {"query_id": "b", "query": "keep bees"}, {"query": " "}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(t) + "\n" for t in tasks), "utf-8")

    done = ask(
        "compose", "--batch", str(tmp_path / "q.jsonl"), "--out", str(tmp_path / "r.jsonl"), "--root", root
    )

    rows = lines_of(tmp_path / "r.jsonl")
    assert done.code == 1
    assert [row["query_id"] for row in rows] == ["a", "b", 3]
    assert "blank" in rows[2]["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "TASK is missing"),
        (["x", "--max-steps", "0"], "--max-steps is 0"),
        (["x", "--alpha", "2"], "--alpha is 2"),
    ],
)
def test_wrong_use_is_one_line(root: str, ask: Ask, arguments: list[str], said: str) -> None:
    done = ask("compose", *arguments, "--root", root)

    assert done.code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
