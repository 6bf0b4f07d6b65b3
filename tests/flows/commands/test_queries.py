"""Questions that nobody should ask, asked through the command in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.commands.queries import page_batch, search_batch, search_filters
from storage.errors import WrongInput
from tasks.retrieve.served_index import ServedIndex
from tests.support.command import Ask, InProcess
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import MINILM, SkillRoot

DOC_ID = f"local/market/{next(iter(SKILLS))}"
ASKED = {"query_id": "q0", "doc_id": DOC_ID, "query": "what comes first?"}
Batch = Callable[[ServedIndex, Path, Path], None]


def search(index: ServedIndex, batch: Path, out: Path) -> None:
    search_batch(index, batch, out, k=3)


def page(index: ServedIndex, batch: Path, out: Path) -> None:
    page_batch(index, batch, out, budget=None, method="mmr")


@pytest.fixture(scope="module")
def index(served_bakery: SkillRoot) -> ServedIndex:
    return served_bakery.ask()


def batch_file(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "q.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


def answers(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@pytest.mark.parametrize("answered", [search, page])
def test_lines_are_answered_in_order_and_their_ids_echoed(
    answered: Batch, index: ServedIndex, tmp_path: Path
) -> None:
    ids = ["b", 7, "a\u2028", 10**30]
    batch = batch_file(tmp_path, *({**ASKED, "query_id": i} for i in ids))
    answered(index, batch, tmp_path / "r.jsonl")
    assert [line["query_id"] for line in answers(tmp_path / "r.jsonl")] == ids


def test_a_line_may_bring_its_own_k_or_budget(index: ServedIndex, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    search(index, batch_file(tmp_path, {**ASKED, "k": 1, "budget": "mine"}, ASKED), out)
    assert [len(line["results"]) for line in answers(out)] == [1, 3]
    page(index, batch_file(tmp_path, {**ASKED, "budget": 30, "k": "mine"}, {**ASKED, "budget": None}), out)
    first, second = answers(out)
    assert (first["budget"], second["budget"]) == (30, None)
    assert first["tokens"] <= 30


_WRONG: dict[str, list[Any]] = {
    "query_id": [None, True, 1.5, ["a"]],
    "query": [None, 3],
    "doc_id": [None, 3, ["a"]],
    "k": [0, -1, True, 2.0, "3", None],
    "budget": [0, -0.5, True, "40", [], 10**400],
}


@pytest.mark.parametrize(
    ("answered", "change"),
    [
        (answered, {key: value})
        for answered, keys in ((search, ("query_id", "query", "k")), (page, set(_WRONG) - {"k"}))
        for key in sorted(keys)
        for value in _WRONG[key]
    ],
)
def test_a_line_that_is_not_as_it_should_be_is_named_before_anything_is_answered(
    answered: Batch, change: dict[str, Any], index: ServedIndex, tmp_path: Path
) -> None:
    (key,) = change
    batch, out = batch_file(tmp_path, ASKED, {**ASKED, **change}), tmp_path / "r.jsonl"
    with pytest.raises(WrongInput, match=rf"q\.jsonl:2: `{key}` is .*; it must be"):
        answered(index, batch, out)
    assert not out.exists()


@pytest.mark.parametrize("key", ["doc_id", "query"])
def test_a_key_that_is_missing_is_named(key: str, index: ServedIndex, tmp_path: Path) -> None:
    batch = batch_file(tmp_path, {k: v for k, v in ASKED.items() if k != key})
    with pytest.raises(WrongInput, match=rf"q\.jsonl:1: `{key}` is missing"):
        page(index, batch, tmp_path / "r.jsonl")


def test_an_infinite_budget_is_named(index: ServedIndex, tmp_path: Path) -> None:
    batch = batch_file(tmp_path, ASKED)
    batch.write_text(batch.read_text("utf-8").replace("}", ', "budget": 1e999}'), "utf-8")
    with pytest.raises(WrongInput, match=r"q\.jsonl:1: `budget` is inf"):
        page(index, batch, tmp_path / "r.jsonl")


def test_a_line_that_has_no_answer_says_why_and_the_others_are_answered(
    index: ServedIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = {"query_id": 1, "doc_id": "no/such/skill", "query": "what?"}
    blank = {"query_id": 2, "doc_id": DOC_ID, "query": " "}
    batch, out = batch_file(tmp_path, unknown, blank, ASKED), tmp_path / "r.jsonl"
    page(index, batch, out)
    first, second, third = answers(out)
    assert {**unknown, "error": first["error"]} == first
    assert "'no/such/skill'" in first["error"]
    assert second == {**blank, "error": "the query is blank"}
    assert third["context"]
    assert capsys.readouterr().err == f"2 of 3 lines failed: {out} says why under `error`\n"


def test_a_blank_search_is_a_line_with_an_error(index: ServedIndex, tmp_path: Path) -> None:
    search(index, batch_file(tmp_path, {"query_id": 1, "query": ""}), tmp_path / "r.jsonl")
    assert answers(tmp_path / "r.jsonl") == [{"query_id": 1, "query": "", "error": "the query is blank"}]


@pytest.mark.parametrize("place", ["missing/r.jsonl", "."])
def test_nothing_is_asked_where_the_answers_cannot_be_written(
    place: str, index: ServedIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServedIndex, "search", lambda *_: pytest.fail("asked"))
    with pytest.raises(WrongInput, match="give a file"):
        search(index, batch_file(tmp_path, ASKED), tmp_path / place)
    assert [p.name for p in tmp_path.iterdir()] == ["q.jsonl"]


def test_filters_hold_for_every_line(index: ServedIndex, tmp_path: Path) -> None:
    out, filters = tmp_path / "r.jsonl", search_filters(["skill"], ["unknown"], None)
    search_batch(index, batch_file(tmp_path, ASKED, ASKED), out, k=2, filters=filters, explain=True)
    for line in answers(out):
        assert [(r["kind"], r["licence"]) for r in line["results"]] == [("skill", None)] * 2
        assert all(r["parts"] for r in line["results"])


def test_a_kind_that_is_not_known_is_wrong_use() -> None:
    with pytest.raises(WrongInput, match=r"^kind 'server' is not known: choose skill or mcp-server"):
        search_filters(["server"], None, None)


def test_lines_without_an_id_are_numbered(tmp_path: Path, index: ServedIndex) -> None:
    search(index, batch_file(tmp_path, {"query": "bees"}, {"query": "bread"}), tmp_path / "r.jsonl")
    assert [line["query_id"] for line in answers(tmp_path / "r.jsonl")] == [1, 2]


@pytest.fixture
def searched(ask: Ask, served_bakery: SkillRoot) -> Ask:
    def run(*arguments: str) -> InProcess:
        return ask("search", *arguments, "--root", served_bakery.root.uri, "--json")

    return run


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
def test_a_blank_query_is_wrong_use(query: str, searched: Ask) -> None:
    code, printed, told = searched(query)
    assert (code, printed) == (2, "")
    assert "query" in told
    assert told.count("\n") == 1


def test_a_megabyte_of_text_is_answered_by_what_it_is_about(searched: Ask) -> None:
    task = "The bees in my hive have mites. " * 32_000
    code, printed, _ = searched(task)
    assert code == 0
    assert len(task) > 1_000_000
    assert json.loads(printed)["results"][0]["name"] == "bees"


@pytest.mark.parametrize("query", ["the and of it", "?!…", "\u200b", "🜁", "a" * 5000])
def test_words_that_say_nothing_get_an_answer_and_the_same_one_each_time(query: str, searched: Ask) -> None:
    code, first, told = searched(query)
    _, second, _ = searched(query)
    assert code == 0, told
    one, other = ([(r["doc_id"], r["score"]) for r in json.loads(p)["results"]] for p in (first, second))
    assert one == other
    assert len(one) == len(SKILLS)


@pytest.mark.parametrize("query", ["Milben in der Bienenbeute bekämpfen: bees", "traiter les abeilles, bees"])
def test_another_language_is_answered(query: str, searched: Ask) -> None:
    code, printed, _ = searched(query)
    assert code == 0
    assert json.loads(printed)["results"][0]["name"] == "bees"


def test_an_index_of_another_model_is_refused_and_both_are_named(
    searched: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_ENCODER", "someone/else")
    code, printed, told = searched("look after bees")
    assert (code, printed) == (1, "")
    assert MINILM in told
    assert "someone/else" in told
