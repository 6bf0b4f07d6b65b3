"""`skillery evaluate compose`: methods measured on requests whose steps are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Ask
from tests.support.roots.skill_root import SkillRoot

REQUESTS = [
    {
        "query_id": "1", "query": "Bake a loaf of bread, and then brew a pot of tea.", "difficulty": "easy",
        "steps": [
            {"description": "bake bread", "servers": ["local/market/bread"], "categories": []},
            {"description": "brew green tea", "servers": ["local/market/tea"], "categories": []},
        ],
        "edges": [[1, 2]],
    },
    {
        "query_id": "2", "query": "Look after the bees.", "steps":
        [{"description": "keep bees", "servers": ["local/market/bees"]}], "edges": [],
    },
]  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in REQUESTS), "utf-8")
    return str(path)


def test_each_method_has_means_intervals_and_differences(
    served_bakery: SkillRoot, bench: str, ask: Ask
) -> None:
    where = ["--corpus", str(served_bakery.root.folder), "--queries", bench]
    methods = [word for name in ("local-r1", "gold-steps", "commas") for word in ("--method", name)]

    found = json.loads(ask("evaluate", "compose", *where, *methods, "--json").stdout)

    local, gold, commas = found["methods"]
    assert [row["method"] for row in found["methods"]] == ["local-r1", "gold-steps", "commas"]
    assert (gold["da"], gold["srvr@10"], gold["queries"]) == (1, 1, 2)
    assert commas["against"] is None
    assert set(local["against"]) == set(local["ci95"])
    for row in found["methods"]:
        assert all(low <= row[name] <= high for name, (low, high) in row["ci95"].items())


def test_a_person_reads_a_line_a_measure(served_bakery: SkillRoot, bench: str, ask: Ask) -> None:
    done = ask("evaluate", "compose", "--root", str(served_bakery.root.folder), "--queries", bench)

    assert done.code == 0, done.stderr
    assert "local-r1: " in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "a step has no"),
        ('{"query_id": "1", "query": "x", "steps": [{}]}', "servers"),
        ("", "no request"),
    ],
)
def test_a_file_of_another_form_is_one_line(
    served_bakery: SkillRoot, tmp_path: Path, ask: Ask, line: str, said: str
) -> None:
    (tmp_path / "q.jsonl").write_text(line + "\n" if line else "", "utf-8")

    done = ask(
        "evaluate",
        "compose",
        "--root",
        str(served_bakery.root.folder),
        "--queries",
        str(tmp_path / "q.jsonl"),
    )

    assert (done.code, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr


def test_a_method_that_is_not_known_is_named(served_bakery: SkillRoot, bench: str, ask: Ask) -> None:
    where = ["--root", str(served_bakery.root.folder), "--queries", bench]

    assert "'best'" in ask("evaluate", "compose", *where, "--method", "best").stderr
