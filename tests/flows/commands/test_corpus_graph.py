"""`evaluate edges`: the rules' edges against those of a model, on the skills of a root."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Ask
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked
from tests.support.roots.hand_written import SKILLS, skill
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


Make = Callable[[dict[str, str]], SkillRoot]
BREAD = "## Before you start\n\nYou must have an oven.\n\n## Baking\n\n1. Heat it.\n2. Put the loaf in.\n"


def first_condition(asked: Asked) -> str:
    """Answer that the first precondition shown constrains the next step shown."""
    kinds = [f["kind"] for f in asked.fragments]
    first = kinds.index("precondition") if "precondition" in kinds else len(kinds)
    steps = [k for k, kind in enumerate(kinds) if kind == "step" and k > first]
    pair = [[str(first + 1), str(steps[0] + 1)]] if steps else []
    return json.dumps({"condition": pair, "reference": []})


@pytest.fixture
def root(skill_root: Make) -> str:
    made = skill_root({**SKILLS, "rolls": skill("rolls", "Bakes rolls", BREAD)})
    made.crawl()
    made.parse(vectors=False)
    return str(made.root.uri)


def test_rules_are_measured_against_a_model_whose_answers_are_kept(
    root: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with llm_set_up(monkeypatch, say=first_condition) as server:
        found = json.loads(ask("evaluate", "edges", "--root", root, "--json").stdout)
        sent = server.requests
        again = json.loads(ask("evaluate", "edges", "--root", root, "--json").stdout)
        printed = ask("evaluate", "edges", "--root", root).stdout
        assert 0 < sent == server.requests
    assert found["asked_of"] == found["documents"] == len(SKILLS) + 1
    assert found["model"] == "edges-1@small-model"
    for who in ("rules", "candidates"):
        assert set(found[who]) == {"condition", "reference"}
        assert all(0 <= row[m] <= 1 for row in found[who].values() for m in ("precision", "recall", "f1"))
    assert found["rules"]["reference"]["llm"] == 0
    assert found["candidates"]["condition"]["recall"] == 1 >= found["rules"]["condition"]["recall"]
    assert found["rules"] == again["rules"]
    assert again["llm"]["requests"] == 0
    assert all(len(line) <= 80 for line in printed.splitlines())


def test_without_a_model_one_line_says_what_is_missing(root: str, ask: Ask) -> None:
    done = ask("evaluate", "edges", "--root", root)
    assert done.code == 2
    assert "SKILLERY_LLM_BASE_URL" in done.stderr
    assert len(done.stderr.splitlines()) == 1
