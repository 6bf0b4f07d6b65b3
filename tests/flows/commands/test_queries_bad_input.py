"""Questions that nobody should ask, asked through the command in one process."""

from __future__ import annotations

import json

import pytest

from tests.support.command import Ask, InProcess
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import MINILM, SkillRoot


@pytest.fixture
def search(ask: Ask, served_bakery: SkillRoot) -> Ask:
    def run(*arguments: str) -> InProcess:
        return ask("search", *arguments, "--root", served_bakery.root.uri, "--json")

    return run


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
def test_a_blank_query_is_wrong_use(query: str, search: Ask) -> None:
    code, printed, told = search(query)

    assert (code, printed) == (2, "")
    assert "query" in told
    assert told.count("\n") == 1


def test_a_megabyte_of_text_is_answered_by_what_it_is_about(search: Ask) -> None:
    task = "The bees in my hive have mites. " * 32_000

    code, printed, _ = search(task)

    assert code == 0
    assert len(task) > 1_000_000
    assert json.loads(printed)["results"][0]["name"] == "bees"


@pytest.mark.parametrize("query", ["the and of it", "?!…", "\u200b", "🜁", "a" * 5000])
def test_words_that_say_nothing_get_an_answer_and_the_same_one_each_time(query: str, search: Ask) -> None:
    code, first, told = search(query)
    _, second, _ = search(query)

    assert code == 0, told
    one, other = ([(r["doc_id"], r["score"]) for r in json.loads(p)["results"]] for p in (first, second))
    assert one == other
    assert len(one) == len(SKILLS)


@pytest.mark.parametrize("query", ["Milben in der Bienenbeute bekämpfen: bees", "traiter les abeilles, bees"])
def test_another_language_is_answered(query: str, search: Ask) -> None:
    code, printed, _ = search(query)

    assert code == 0
    assert json.loads(printed)["results"][0]["name"] == "bees"


def test_an_index_of_another_model_is_refused_and_both_are_named(
    search: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_ENCODER", "someone/else")

    code, printed, told = search("look after bees")

    assert (code, printed) == (1, "")
    assert MINILM in told
    assert "someone/else" in told
