"""Questions that nobody should ask, asked through the command in one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.api import SkillIndex, pages_for
from flows.commands.operate import root_status
from flows.commands.queries import page_batch, search_batch, search_filters
from flows.settings import Settings, load_settings
from storage.errors import WrongInput
from storage.lance.served import LICENCES, require_licences
from storage.root import Root
from storage.state import read_runs
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import EXPORT_POLICY, SERVE_POLICY, LicencePolicy
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.served_index import ServedIndex
from tests.support.command import Ask
from tests.support.command import lines_of as answers
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import LlmServer
from tests.support.llm.scripted import requests_about
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


@pytest.mark.parametrize("answered", [search, page])
def test_lines_are_answered_in_order_and_their_ids_echoed(
    answered: Batch, index: ServedIndex, tmp_path: Path
) -> None:
    ids = ["b", 7, "a\u2028", 10**30]
    unnamed = {key: ASKED[key] for key in ("doc_id", "query")}  # it gets its number in the file
    batch = batch_file(tmp_path, *({**ASKED, "query_id": i} for i in ids), unnamed)
    answered(index, batch, tmp_path / "r.jsonl")
    assert [line["query_id"] for line in answers(tmp_path / "r.jsonl")] == [*ids, 5]


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
    if key in ("doc_id", "query"):
        batch = batch_file(tmp_path, {k: v for k, v in ASKED.items() if k != key})
        with pytest.raises(WrongInput, match=rf"q\.jsonl:1: `{key}` is missing"):
            answered(index, batch, out)
    assert not out.exists()


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


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
def test_a_blank_query_is_wrong_use(query: str, ask: Ask, served_bakery: SkillRoot) -> None:
    assert "query" in ask.refused("search", query, "--root", served_bakery.root.uri)


@pytest.mark.parametrize(
    "query",
    [
        "The bees in my hive have mites. " * 32_000,
        "Milben in der Bienenbeute: bees",
        "traiter les abeilles, bees",
    ],
    ids=["a megabyte", "German", "French"],
)
def test_any_text_is_answered_by_what_it_is_about(query: str, ask: Ask, served_bakery: SkillRoot) -> None:
    found = ask.told("search", query, "--root", served_bakery.root.uri)
    assert found["results"][0]["name"] == "bees"


@pytest.mark.parametrize("query", ["the and of it", "?!…", "\u200b", "🜁", "a" * 5000])
def test_words_that_say_nothing_get_an_answer_and_the_same_one_each_time(
    query: str, ask: Ask, served_bakery: SkillRoot
) -> None:
    one, other = (
        [(r["doc_id"], r["score"]) for r in found["results"]]
        for found in (ask.told("search", query, "--root", served_bakery.root.uri) for _ in range(2))
    )
    assert one == other
    assert len(one) == len(SKILLS)


def test_an_index_of_another_model_is_refused_and_both_are_named(
    ask: Ask, served_bakery: SkillRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_ENCODER", "someone/else")
    code, printed, told = ask("search", "look after bees", "--root", served_bakery.root.uri)
    assert (code, printed) == (1, "")
    assert MINILM in told
    assert "someone/else" in told


BREAD = "local/market/bread"


@pytest.fixture
def kept_back(served_bakery: SkillRoot) -> Any:  # noqa: ANN401 (a generator of roots)
    """A root whose texts have no licence, under a policy that asks for one."""
    skills = served_bakery.served().skills
    classify_licences(served_bakery.root, skills, LicencePolicy())
    yield served_bakery
    classify_licences(served_bakery.root, skills, SERVE_POLICY)


def test_settings_left_alone_are_the_two_policies_others_are_read_from_the_environment_and_are_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies = Settings().licence_policies()
    assert LicencePolicy(**policies["serve"]) == SERVE_POLICY
    assert LicencePolicy(**policies["export"]) == EXPORT_POLICY
    monkeypatch.setenv("SKILLERY_LICENCES_DENY", '["gpl-3.0-only"]')
    monkeypatch.setenv("SKILLERY_LICENCES_UNKNOWN_EXPORT", "deny")
    policies = json.loads(json.dumps(load_settings().licence_policies()))
    assert policies["serve"]["deny"] == policies["export"]["deny"] == ["GPL-3.0-only"]
    assert (policies["serve"]["unknown"], policies["export"]["unknown"]) == ("allow", "deny")


def test_a_policy_refines_anew_only_where_classes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_LICENCES_DENY", '["MIT"]')
    assert load_settings().limits() == FilterLimits()
    monkeypatch.setenv("SKILLERY_DROP_LICENCES", '["deny"]')
    assert load_settings().limits().policy.deny == ("MIT",)


@pytest.mark.parametrize("lines", [[], ["--json"], ["--markdown"]])
def test_a_page_that_is_kept_back_is_wrong_use_and_prints_nothing(
    lines: list[str], kept_back: SkillRoot, ask: Ask
) -> None:
    told = ask.refused("page", BREAD, "how long to knead?", *lines, "--root", kept_back.root.uri)
    assert told.startswith(f"skillery: {BREAD} is withheld: its licence, unknown, is of class metadata")


def test_a_line_of_a_batch_that_is_kept_back_says_why_and_status_counts_by_class(
    kept_back: SkillRoot, tmp_path: Path
) -> None:
    line = {"query_id": 1, "doc_id": BREAD, "query": "how long to knead?"}
    assert list(pages_for(SkillIndex(kept_back.root), line["query"], 3, None)) == []
    page(kept_back.ask(), batch_file(tmp_path, line), tmp_path / "r.jsonl")
    (answer,) = answers(tmp_path / "r.jsonl")
    assert {**line, "error": answer["error"]} == answer
    assert "SKILLERY_LICENCES_UNKNOWN_SERVE" in answer["error"]
    assert root_status(kept_back.root)["licences"] == {"allow": 0, "metadata-only": 4, "deny": 0}
    kept_back.root.delete(LICENCES)
    found = root_status(kept_back.root)["licences"]
    assert found == {"allow": 0, "metadata-only": 0, "deny": 0, "unclassed": 4}
    assert root_status(Root(tmp_path / "none"))["licences"] == {"allow": 0, "metadata-only": 0, "deny": 0}


def test_a_night_in_which_only_the_policy_changed_changes_what_is_shown_and_makes_no_vector(
    no_server: None, root: str, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.nightly import nightly

    with monkeypatch.context() as patched:
        patched.setenv("SKILLERY_LICENCES_ALLOW", '["Apache 2"]')
        with pytest.raises(WrongInput, match="licences_allow: 'Apache 2'"):
            nightly(root, [f"dir:{skills}"])
    assert (read_runs(Root(root)), Root(root).files("raw")) == ([], []), "it is said before any crawl"
    first = nightly(root, [f"dir:{skills}"])
    assert require_licences(Root(root)).unknown == "allow"
    monkeypatch.setenv("SKILLERY_LICENCES_UNKNOWN_SERVE", "deny")
    second = nightly(root)
    assert (second["published"], second["vectors_new"], second["served"]) == (False, 0, first["served"])
    assert require_licences(Root(root)).unknown == "deny"
    assert root_status(Root(root))["licences"] == {"allow": 0, "metadata-only": 0, "deny": 2}


QUERY = "what comes first?"


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=lambda _: '{"needed": [1]}') as running:
        yield running


def test_a_page_and_each_line_of_a_batch_say_what_the_model_added_and_ask_it_once(
    llm: LlmServer, served_bakery: SkillRoot, tmp_path: Path, ask: Ask
) -> None:
    arguments = ["page", DOC_ID, QUERY, "--rerank", "--root", served_bakery.root.uri]
    found = ask.told(*arguments)
    assert found["reranked"] is True
    assert all("reranker" in node["why"] for node in found["nodes"])
    again = ask(*arguments)
    assert again.code == 0
    assert "method facets, reranked" in again.stdout
    assert llm.requests == 1
    lines = [{"query_id": n, "doc_id": DOC_ID, "query": f"{QUERY} {n}"} for n in range(3)]
    batch, out = batch_file(tmp_path, *lines), tmp_path / "r.jsonl"
    arguments = ["--batch", str(batch), "--out", str(out), "--root", served_bakery.root.uri]
    assert ask("page", *arguments, "--rerank").code == 0
    assert [line["reranked"] for line in answers(out)] == [True] * 3
    assert llm.requests == 1 + 3


def test_a_model_that_gives_no_answer_leaves_the_page_and_is_told_of(
    llm: LlmServer, served_bakery: SkillRoot, ask: Ask
) -> None:
    llm.say = lambda _: "I would rather not."
    asked = ask("page", DOC_ID, "what is last?", "--rerank", "--json", "--root", served_bakery.root.uri)
    assert asked.code == 0
    assert json.loads(asked.stdout)["reranked"] is False
    assert "no answer that can be used (1 x page-needed-1: malformed): such pages are not" in asked.stderr


def test_methods_of_papers_are_not_reranked(
    llm: LlmServer, served_bakery: SkillRoot, tmp_path: Path, ask: Ask
) -> None:
    arguments = ["--method", "mmr", "--rerank", "--root", served_bakery.root.uri]
    batch = batch_file(tmp_path, {"query_id": 1, "doc_id": DOC_ID, "query": QUERY})
    for what in ([DOC_ID, QUERY], ["--batch", str(batch), "--out", str(tmp_path / "r.jsonl")]):
        assert "only 'facets' can be reranked" in ask.refused("page", *what, *arguments)
    assert llm.requests == 0


def test_the_default_is_measured_with_and_without_it(
    llm: LlmServer, root: str, tmp_path: Path, ask: Ask
) -> None:
    guide = "\n".join(f"Turn the mill crank {n} times before step {n}." for n in range(1, 15))
    document = {"doc_id": "market/mill", "content": f"---\nname: mill\n---\n# Mill\n\n{guide}\n"}
    request = {"query_id": "q", "doc_id": "market/mill", **requests_about(guide, "mill")[1]}
    documents, queries = tmp_path / "d.jsonl", tmp_path / "q.jsonl"
    documents.write_text(json.dumps(document) + "\n", "utf-8")
    queries.write_text(json.dumps(request) + "\n", "utf-8")
    bench = ["evaluate", "paging", "--documents", str(documents), "--queries", str(queries), "--root", root]
    limits = ["--method", "facets", "--method", "mmr", "--budget", "0.3", "--budget", "0.5"]
    rows = ask.told(*bench, *limits, "--rerank")["methods"]
    named = [(row["method"], row["budget"]) for row in rows]
    assert named[-2:] == [("facets, reranked", 0.3), ("facets, reranked", 0.5)]
    assert len(named) == 6
    assert llm.requests == 1  # the budgets share an answer
    for options, complaint in (
        (["--report", str(tmp_path / "report")], "--rerank goes without --report"),
        (["--method", "mmr"], "add --method facets"),
    ):
        assert complaint in ask.refused(*bench, "--rerank", *options)
