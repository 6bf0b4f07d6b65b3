from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Ask
from tests.support.roots.skill_root import SkillRoot

BEES = "local/market/bees"


@pytest.fixture
def given(served_bakery: SkillRoot) -> list[str]:
    return ["--root", served_bakery.root.uri]


def test_the_picture_is_written_and_described(ask: Ask, given: list[str], tmp_path: Path) -> None:
    out = tmp_path / "bees.svg"
    answer = ask("graph", BEES, "--out", str(out), "--json", *given)
    found = json.loads(answer.stdout)
    assert answer.code == 0
    assert out.read_text("utf-8").startswith("<?xml")
    assert [p.name for p in tmp_path.iterdir()] == ["bees.svg"]
    assert (found["doc_id"], found["out"]) == (BEES, str(out))
    assert sum(found["counts"]["nodes"].values()) == len(found["nodes"]) > 3
    assert found["counts"]["edges"]["sequence"] == len(found["nodes"]) - 1


def test_a_person_reads_the_counts(ask: Ask, given: list[str], tmp_path: Path) -> None:
    answer = ask("graph", BEES, "--out", str(tmp_path / "bees.SVG"), *given)
    assert f"{BEES}: drawn to " in answer.stdout
    assert "sequence" in answer.stdout
    assert (tmp_path / "bees.SVG").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("doc_id", "out", "said"),
    [
        (
            "local/market/bee",
            "x.svg",
            r"no served document has the id 'local/market/bee'; near it are local/market/bees",
        ),
        ("nothing/like/it/at/all", "x.svg", "no served document has the id 'nothing/like/it/at/all': "),
        (BEES, "x.png", "name a file that ends in .svg"),
        (BEES, "missing/x.svg", "cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_nothing_written(
    ask: Ask,
    given: list[str],
    tmp_path: Path,
    doc_id: str,
    out: str,
    said: str,
) -> None:
    answer = ask("graph", doc_id, "--out", str(tmp_path / out), *given)
    assert answer.code == 2
    assert said in answer.stderr
    assert not [*tmp_path.iterdir()]


def test_before_anything_is_served_there_is_no_graph(ask: Ask, tmp_path: Path) -> None:
    answer = ask("graph", BEES, "--out", str(tmp_path / "x.svg"), "--root", str(tmp_path / "root"))
    assert answer.code == 1
    assert "skillery run" in answer.stderr
