from __future__ import annotations

import numpy as np
import pytest

from tasks.retrieve.routing.postings import term_sequence
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.queries import QuerySettings, make_queries, telling_sentences
from tests.support.models.training_material import trades

HOW = QuerySettings()


def bread(body: str) -> Skill:
    return Skill("home/bread", "rye-bread", "Bakes a dark loaf out of coarse flour in a stone oven", body)


def trigrams(terms: list[int]) -> set[tuple[int, int, int]]:
    return set(zip(terms, terms[1:], terms[2:], strict=False))


def asked(body: str) -> list[str]:
    return [sentence.text for sentence in telling_sentences(bread(body), HOW)]


def test_sentences_of_prose_and_lists_are_asked_with_and_markup_is_not() -> None:
    body = (
        "# Bread\n\nLet the **starter** rest overnight in a [cool](https://a.example) room.\n\n"
        "1. Scald the seeds with water before they go in.\n"
    )

    assert asked(body) == [
        "Let the starter rest overnight in a cool room.",
        "Scald the seeds with water before they go in.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Bakes a dark loaf out of coarse flour in a stone oven.",
        "It bakes a dark loaf out of coarse flour.",
        "Call for rye bread when guests arrive on Sunday.",
        "Only five words stand here.",
        "Run oven.heat(220) and wait until it has settled down.",
        "Read more about it on https://bread.example before you begin.",
        "These are the things that you will need today:",
        " ".join(["flour"] * 61) + ".",
    ],
)
def test_what_repeats_the_description_names_the_skill_or_is_no_sentence_is_not_asked(sentence: str) -> None:
    assert asked(f"# Bread\n\n{sentence}\n") == []


@pytest.mark.parametrize(
    "sentence",
    [
        "A dark loaf wants twelve minutes longer than a pale one does.",
        "Sift rye into the bowl, and keep bread flour for dusting.",
    ],
)
def test_what_shares_a_few_words_with_name_and_description_is_asked(sentence: str) -> None:
    assert asked(f"# Bread\n\n{sentence}\n") == [sentence]


def test_code_and_tables_are_not_asked_with() -> None:
    assert (
        asked("```\nstir the dough until it comes off the bowl\n```\n\n| a | b |\n|---|---|\n| c | d |\n")
        == []
    )


def test_queries_are_absent_from_name_and_description_and_stand_in_the_body() -> None:
    skills = trades()

    queries = make_queries(skills, np.arange(len(skills)), 100, HOW, np.random.default_rng(0))

    assert [query.query_id for query in queries] == [skill.doc_id for skill in skills]
    assert {len(query.passages) for query in queries} == {1, 2, 3}
    for query in queries:
        skill = skills[query.row]
        head = term_sequence(f"{skill.name} {skill.description}")
        terms = term_sequence(query.text)
        assert not trigrams(terms) & trigrams(head)
        assert skill.name not in query.text
        masked = query.without_passages(skill)
        for passage in query.passages:
            assert passage in skill.body
            assert passage not in masked.body
        assert masked.body != ""


def test_no_more_queries_are_made_than_wanted_and_skills_without_sentences_are_passed_over() -> None:
    skills = [bread("# Nothing\n"), *trades()]
    draw = np.random.default_rng(0)

    queries = make_queries(skills, np.arange(len(skills)), 3, HOW, draw)

    assert [query.row for query in queries] == [1, 2, 3]


def test_queries_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    skills = trades()
    one, other, third = (
        make_queries(skills, np.arange(24), 24, HOW, np.random.default_rng(seed)) for seed in (7, 7, 8)
    )

    assert one == other != third
