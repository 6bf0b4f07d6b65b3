"""Fragments typed through the command: locally, by an LLM that misbehaves, and by both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.answers import FILE
from storage.root import Root
from tasks.parse.classify.local import LocalClassifier
from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import fragments_of, llm_set_up, settings_of, write_fragments
from tests.support.llm.llm_server import Asked, LlmServer, label_of
from tests.support.llm.scripted import says
from tests.support.roots.hand_written import SKILLS, skill
from tests.support.roots.skill_root import SkillRoot

LLM, FALLBACK = "classify-1@small-model", f"{LocalClassifier.name}:fallback"
AT_ONCE = 4
"""Questions under way at once where no setting says otherwise."""


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer() as running:
        yield running


class Command:
    """Types fragments by the command, in this process, with the settings of a server."""

    def __init__(self, folder: Path, ask: Ask, environment: pytest.MonkeyPatch, server: LlmServer) -> None:
        self.folder, self.ask, self.environment, self.server = folder, ask, environment, server
        self.root = Root(folder / "root")

    def set(self, **settings: object) -> None:
        for name, value in settings_of(self.server, **settings).items():
            self.environment.setenv(name, value)

    def arguments(self, fragments: Path, kind: str = "llm") -> list[str]:
        out = ["--out", str(self.folder / "out.jsonl"), "--root", self.root.uri]
        return ["classify", str(fragments), *out, "--classifier", kind]

    def typed(self, fragments: Path, kind: str = "llm") -> dict[str, Any]:
        return self.ask.told(*self.arguments(fragments, kind))

    def rows(self) -> list[dict[str, Any]]:
        return lines_of(self.folder / "out.jsonl")


@pytest.fixture
def command(tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, server: LlmServer) -> Command:
    made = Command(tmp_path, ask, monkeypatch, server)
    made.set()
    return made


def test_a_server_that_denies_access_stops_the_command_at_once(
    command: Command, server: LlmServer, tmp_path: Path
) -> None:
    command.set(API_KEY="sk-hush")
    server.fault = lambda _: "401"
    done = command.ask(*command.arguments(write_fragments(tmp_path / "f.jsonl", fragments_of(9, 20))))
    assert (done.code, done.stdout, server.requests) == (1, "", 1)
    assert "check SKILLERY_LLM_API_KEY" in done.stderr
    assert "sk-hush" not in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_model_that_is_worse_than_the_local_classifier_types_nothing_unless_it_is_believed(
    command: Command, server: LlmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_fragments(tmp_path / "f.jsonl", fragments_of(1, 2))
    monkeypatch.delenv("SKILLERY_LLM_ACCURACY")
    server.say = says(lambda _text, _true: "example")
    for _ in range(2):
        told = command.ask.refused(*command.arguments(path, "hybrid"))
        assert "it typed 72, 0.17 of these right, the local classifier 0.72" in told
        assert server.requests == 4
    assert not (tmp_path / "out.jsonl").exists()
    command.set(ACCURACY=0.17)
    found = command.typed(path)
    assert (found["types"], found["llm"]["requests"]) == ({"example": 2}, 1)
    assert {row["confidence"] for row in command.rows()} == {0.17}


def test_the_ceiling_ends_the_asking_and_the_next_run_asks_for_the_rest_alone(
    command: Command, server: LlmServer, tmp_path: Path
) -> None:
    path = write_fragments(tmp_path / "f.jsonl", fragments_of(10, 20))
    server.usage = {"prompt_tokens": 1_000, "completion_tokens": 100}
    command.set(MAX_COST=0.004, PROMPT_PRICE=1, COMPLETION_PRICE=1, CONCURRENCY=1, MAX_TOKENS=100)
    found = command.typed(path)
    report, sent = found["llm"], server.requests
    assert (report["partial"], report["spent"], report["unfinished"]) == (True, True, 10 - sent)
    assert report["fallbacks"] == {"budget": 20 * (10 - sent)}
    assert report["cost"] == pytest.approx(sent * 0.0011)
    assert report["cost"] <= 0.004
    done = command.ask(*command.arguments(path))
    late = 10 - server.requests
    assert f"partial: the budget is spent; the rest of {late} documents is typed locally" in done.stdout
    assert server.requests > sent
    command.set(MAX_COST=1)
    assert not command.typed(path)["llm"]["partial"]
    assert server.requests == 10


def test_a_hybrid_asks_about_what_the_local_classifier_is_unsure_of(
    command: Command, server: LlmServer, tmp_path: Path
) -> None:
    texts = [
        "Run `make`.", "Honey.", "Never open the hive in rain.", "--depth: how deep", "Bees dance.", "No.",
    ]  # fmt: skip
    lines = [
        {"id": f"x{k}", "doc_id": "m/b", "heading_path": [], "block": "prose", "text": text}
        for k, text in enumerate(texts)
    ]
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    command.typed(path, "local")
    local = {row["id"]: row for row in command.rows()}
    assert {row["classifier"] for row in local.values()} == {LocalClassifier.name}
    assert not command.root.exists(FILE)
    confidences = sorted(row["confidence"] for row in local.values())
    command.set(THRESHOLD=(confidences[2] + confidences[3]) / 2)
    found, rows = command.typed(path, "hybrid"), command.rows()
    assert found["classifiers"] == Counter(row["classifier"] for row in rows)
    assert found["types"] == Counter(row["node_type"] for row in rows)
    unsure = {row["id"] for row in rows if row["classifier"] == LLM}
    assert len(unsure) == found["llm"]["asked"] == 3
    assert all(local[row["id"]] == row for row in rows if row["id"] not in unsure)
    sent = server.requests
    assert (command.typed(path, "hybrid")["llm"]["requests"], server.requests) == (0, sent)
    asked = [text for question in server.asked for text in question.texts]
    assert asked == [line["text"] for line in lines if line["id"] in unsure]


def test_nothing_is_asked_where_the_types_cannot_be_written(
    command: Command, server: LlmServer, tmp_path: Path
) -> None:
    path = write_fragments(tmp_path / "f.jsonl", fragments_of(1, 2))
    given = ("--out", str(tmp_path / "no" / "t.jsonl"), "--classifier", "llm")
    assert "give a file" in command.ask.refused("classify", str(path), *given)
    assert server.requests == 0


def test_fragments_typed_in_pieces_have_the_types_of_the_whole(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_fragments(tmp_path / "f.jsonl", fragments_of(1, 7))
    command.typed(path, "local")
    whole = command.rows()
    monkeypatch.setattr("tasks.parse.classify.llm._AT_ONCE", 2)
    monkeypatch.setattr("flows.commands.console._SECONDS_BETWEEN_LINES", 0.0)
    told = command.ask(*command.arguments(path, "local")).stderr.splitlines()
    assert told == [f"typed {done} of 7" for done in (2, 4, 6, 7)]
    assert command.rows() == whole
    assert [row["id"] for row in whole] == [f.fragment_id for f in fragments_of(1, 7)]


def test_agreement_with_people_is_measured_with_what_each_threshold_brings(
    command: Command, server: LlmServer, tmp_path: Path
) -> None:
    fragments = fragments_of(3, 10)
    path = tmp_path / "gold.jsonl"
    lines = [
        {
            "id": f.fragment_id, "heading_path": f.heading_path, "block": f.block, "text": f.text,
            "node_type": label_of(f.text),
        }
        for f in fragments
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    arguments = ["evaluate", "nodes", str(path), "--root", command.root.uri]
    local = command.ask.told(*arguments)
    assert (local["classifier"], local["measured"], local["llm"]) == (LocalClassifier.name, False, None)
    command.set(THRESHOLD=1)
    found = command.ask.told(*arguments, "--classifier", "hybrid")
    assert (found["accuracy"], found["macro_f1"], found["measured"]) == (1.0, 1.0, True)
    assert (found["llm"]["asked"], server.requests) == (30, 3)
    first, last = found["thresholds"][0], found["thresholds"][-1]
    assert (first["sent"], first["accuracy"]) == (0.0, local["accuracy"])
    assert (last["sent"], last["accuracy"]) == (1.0, 1.0)
    printed = command.ask(*arguments, "--classifier", "llm").stdout
    assert printed.startswith("classify-1@small-model: accuracy 1.000, macro-F1 1.000 on 30 fragments")
    assert server.requests == 3


def test_nodes_to_be_labelled_are_balanced_and_tell_no_type(
    served_bakery: SkillRoot, ask: Ask, tmp_path: Path
) -> None:
    out = tmp_path / "label.jsonl"
    command = ["bench", "nodes", "--out", str(out), "--nodes", "9", "--root", served_bakery.root.uri]
    found, lines = ask.told(*command), lines_of(out)
    assert len(lines) == found["nodes"] == 9
    assert max(found["by_type"].values()) - min(found["by_type"].values()) <= 2
    assert {line["node_type"] for line in lines} == {""}
    assert len({line["id"] for line in lines}) == 9
    assert "is there already, and may hold labels" in ask.refused(*command)
    out.write_text("".join(json.dumps({**line, "node_type": "step"}) + "\n" for line in lines), "utf-8")
    measured = ask.told("evaluate", "nodes", str(out), "--root", served_bakery.root.uri)
    assert measured["accuracy"] == found["by_type"].get("step", 0) / 9


BEES = "local/market/bees"


@pytest.fixture
def given(served_bakery: SkillRoot) -> list[str]:
    return ["--root", served_bakery.root.uri]


def test_the_picture_is_written_and_described(ask: Ask, given: list[str], tmp_path: Path) -> None:
    out = tmp_path / "bees.svg"
    found = ask.told("graph", BEES, "--out", str(out), *given)
    assert out.read_text("utf-8").startswith("<?xml")
    assert [p.name for p in tmp_path.iterdir()] == ["bees.svg"]
    assert (found["doc_id"], found["out"]) == (BEES, str(out))
    assert sum(found["counts"]["nodes"].values()) == len(found["nodes"]) > 3
    assert found["counts"]["edges"]["sequence"] == len(found["nodes"]) - 1
    answer = ask("graph", BEES, "--out", str(tmp_path / "bees.SVG"), *given)
    assert f"{BEES}: drawn to " in answer.stdout
    assert "sequence" in answer.stdout
    assert (tmp_path / "bees.SVG").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("doc_id", "out", "said"),
    [
        ("local/market/bee", "x.svg", "has the id 'local/market/bee'; near it are local/market/bees"),
        ("nothing/like/it/at/all", "x.svg", "no served document has the id 'nothing/like/it/at/all': "),
        (BEES, "x.png", "name a file that ends in .svg"),
        (BEES, "missing/x.svg", "cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_nothing_written(
    ask: Ask, given: list[str], tmp_path: Path, doc_id: str, out: str, said: str,
) -> None:  # fmt: skip
    assert said in ask.refused("graph", doc_id, "--out", str(tmp_path / out), *given)
    assert not [*tmp_path.iterdir()]


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
        found = ask.told("evaluate", "edges", "--root", root)
        sent = server.requests
        again = ask.told("evaluate", "edges", "--root", root)
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
