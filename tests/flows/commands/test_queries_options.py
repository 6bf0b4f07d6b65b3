"""The options by which a language model has a say in paging."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from flows.commands.operate import root_status
from flows.commands.queries import page_batch
from flows.settings import Settings, load_settings
from storage.errors import WrongInput
from storage.lance.served import LICENCES, require_licences
from storage.root import Root
from storage.state import read_runs
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import EXPORT_POLICY, SERVE_POLICY, LicencePolicy
from tasks.retrieve.index.licence_classes import classify_licences
from tests.support.command import Ask, lines_of
from tests.support.llm.llm_asking import llm_set_up
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import requests_about
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

BREAD = "local/market/bread"


@pytest.fixture
def kept_back(served_bakery: SkillRoot) -> Any:  # noqa: ANN401 (a generator of roots)
    """A root whose texts have no licence, under a policy that asks for one."""
    skills = served_bakery.served().skills
    classify_licences(served_bakery.root, skills, LicencePolicy())
    yield served_bakery
    classify_licences(served_bakery.root, skills, SERVE_POLICY)


def test_settings_left_alone_are_the_two_policies() -> None:
    policies = Settings().licence_policies()
    assert LicencePolicy(**policies["serve"]) == SERVE_POLICY
    assert LicencePolicy(**policies["export"]) == EXPORT_POLICY


def test_policies_are_read_from_the_environment_and_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
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
    lines: list[str],
    kept_back: SkillRoot,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["page", BREAD, "how long to knead?", *lines, "--root", kept_back.root.uri]
    monkeypatch.setattr(sys, "argv", ["skillery", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert printed.err.startswith(
        f"skillery: {BREAD} is withheld: its licence, unknown, is of class metadata"
    )


def test_a_line_of_a_batch_that_is_kept_back_says_why(kept_back: SkillRoot, tmp_path: Path) -> None:
    line = {"query_id": 1, "doc_id": BREAD, "query": "how long to knead?"}
    batch, out = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    batch.write_text(json.dumps(line) + "\n", "utf-8")
    page_batch(kept_back.ask(), batch, out, budget=None, method="mmr")
    (answer,) = (json.loads(text) for text in out.read_text("utf-8").splitlines())
    assert {**line, "error": answer["error"]} == answer
    assert "SKILLERY_LICENCES_UNKNOWN_SERVE" in answer["error"]


def test_status_counts_documents_by_class(kept_back: SkillRoot, tmp_path: Path) -> None:
    assert root_status(kept_back.root)["licences"] == {"allow": 0, "metadata-only": 4, "deny": 0}
    kept_back.root.delete(LICENCES)
    found = root_status(kept_back.root)["licences"]
    assert found == {"allow": 0, "metadata-only": 0, "deny": 0, "unclassed": 4}
    assert root_status(Root(tmp_path))["licences"] == {"allow": 0, "metadata-only": 0, "deny": 0}


def test_a_night_in_which_only_the_policy_changed_changes_what_is_shown_and_makes_no_vector(
    no_server: None, root: str, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.nightly import nightly

    first = nightly(root, [f"dir:{skills}"])
    assert require_licences(Root(root)).unknown == "allow"
    monkeypatch.setenv("SKILLERY_LICENCES_UNKNOWN_SERVE", "deny")
    second = nightly(root)
    assert (second["published"], second["vectors_new"], second["served"]) == (False, 0, first["served"])
    assert require_licences(Root(root)).unknown == "deny"
    assert root_status(Root(root))["licences"] == {"allow": 0, "metadata-only": 0, "deny": 2}


def test_a_misspelt_licence_is_said_before_anything_is_crawled(
    no_server: None, root: str, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.nightly import nightly

    monkeypatch.setenv("SKILLERY_LICENCES_ALLOW", '["Apache 2"]')
    with pytest.raises(WrongInput, match="licences_allow: 'Apache 2'"):
        nightly(root, [f"dir:{skills}"])
    assert read_runs(Root(root)) == []
    assert Root(root).files("raw") == []


DOC_ID = f"local/market/{next(iter(SKILLS))}"
QUERY = "what comes first?"


def takes_the_first(asked: Asked) -> str:
    return json.dumps({"needed": [1]})


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    with llm_set_up(monkeypatch, say=takes_the_first) as running:
        yield running


def test_a_page_says_what_the_model_added_and_asks_it_once(
    llm: LlmServer, served_bakery: SkillRoot, ask: Ask
) -> None:
    arguments = ["page", DOC_ID, QUERY, "--rerank", "--root", served_bakery.root.uri]
    found = json.loads(ask(*arguments, "--json").stdout)
    assert found["reranked"] is True
    assert all("reranker" in node["why"] for node in found["nodes"])
    again = ask(*arguments)
    assert again.code == 0
    assert "method facets, reranked" in again.stdout
    assert llm.requests == 1


def test_a_batch_is_reranked_line_by_line(
    llm: LlmServer, served_bakery: SkillRoot, tmp_path: Path, ask: Ask
) -> None:
    batch, out = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    lines = [{"query_id": n, "doc_id": DOC_ID, "query": f"{QUERY} {n}"} for n in range(3)]
    batch.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    arguments = ["--batch", str(batch), "--out", str(out), "--root", served_bakery.root.uri]
    assert ask("page", *arguments, "--rerank").code == 0
    assert [line["reranked"] for line in lines_of(out)] == [True] * 3
    assert llm.requests == 3


def test_a_model_that_gives_no_answer_leaves_the_page_and_is_told_of(
    llm: LlmServer, served_bakery: SkillRoot, ask: Ask
) -> None:
    llm.say = lambda _: "I would rather not."
    asked = ask("page", DOC_ID, "what is last?", "--rerank", "--json", "--root", served_bakery.root.uri)
    assert asked.code == 0
    assert json.loads(asked.stdout)["reranked"] is False
    assert (
        "no answer that can be used (1 x page-needed-1: malformed): such pages are not reranked"
        in asked.stderr
    )


def test_without_a_model_set_up_nothing_is_answered(served_bakery: SkillRoot, ask: Ask) -> None:
    asked = ask("page", DOC_ID, QUERY, "--rerank", "--root", served_bakery.root.uri)
    assert (asked.code, asked.stdout) == (2, "")
    assert "SKILLERY_LLM_BASE_URL" in asked.stderr


def test_methods_of_papers_are_not_reranked(
    llm: LlmServer, served_bakery: SkillRoot, tmp_path: Path, ask: Ask
) -> None:
    arguments = ["--method", "mmr", "--rerank", "--root", served_bakery.root.uri]
    batch = tmp_path / "q.jsonl"
    batch.write_text(json.dumps({"query_id": 1, "doc_id": DOC_ID, "query": QUERY}) + "\n", "utf-8")
    for what in ([DOC_ID, QUERY], ["--batch", str(batch), "--out", str(tmp_path / "r.jsonl")]):
        asked = ask("page", *what, *arguments)
        assert asked.code == 2
        assert "only 'facets' can be reranked" in asked.stderr
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
    rows = json.loads(ask(*bench, *limits, "--rerank", "--json").stdout)["methods"]
    named = [(row["method"], row["budget"]) for row in rows]
    assert named[-2:] == [("facets, reranked", 0.3), ("facets, reranked", 0.5)]
    assert len(named) == 6
    assert llm.requests == 1  # the budgets share an answer
    for options, complaint in (
        (["--report", str(tmp_path / "report")], "--rerank goes without --report"),
        (["--method", "mmr"], "add --method facets"),
    ):
        refused = ask(*bench, "--rerank", *options)
        assert refused.code == 2
        assert complaint in refused.stderr
