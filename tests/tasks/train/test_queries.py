from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from storage.errors import WrongInput
from tasks.retrieve.routing.postings import term_sequence
from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.train.queries import (
    PAIRS,
    TrainingOptions,
    asked_of,
    make_queries,
    read_pairs,
    telling_sentences,
    without_queries,
)
from tests.support.models.training_material import trades

HOW = TrainingOptions()


def bread(body: str) -> Skill:
    return Skill("home/bread", "rye-bread", "Bakes a dark loaf out of coarse flour in a stone oven", body)


def trigrams(terms: list[int]) -> set[tuple[int, int, int]]:
    return set(zip(terms, terms[1:], terms[2:], strict=False))


def asked(body: str) -> list[str]:
    return [sentence.text for sentence in telling_sentences(bread(body), HOW.copied)]


def test_sentences_of_prose_and_lists_are_asked_with_and_markup_is_not() -> None:
    body = (
        "# Bread\n\nLet the **starter** rest overnight in a [cool](https://a.example) room.\n\n"
        "1. Scald the seeds with water before they go in.\n"
    )
    assert asked(body) == [
        "Let the starter rest overnight in a cool room.",
        "Scald the seeds with water before they go in.",
    ]
    # A few words may be shared with name and description.
    for sentence in (
        "A dark loaf wants twelve minutes longer than a pale one does.",
        "Sift rye into the bowl, and keep bread flour for dusting.",
    ):
        assert asked(f"# Bread\n\n{sentence}\n") == [sentence]


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
        "```\nstir the dough until it comes off the bowl\n```\n\n| a | b |\n|---|---|\n| c | d |",
    ],
)
def test_what_repeats_the_description_names_the_skill_or_is_no_sentence_is_not_asked(sentence: str) -> None:
    assert asked(f"# Bread\n\n{sentence}\n") == []


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
    one, other, third = (
        make_queries(skills, np.arange(25), 24, HOW, np.random.default_rng(seed)) for seed in (7, 7, 8)
    )
    assert one == other != third


TEA = Skill("house/tea", "tea", "Warms the pot first. Use to brew black tea for guests.", "Pour it slowly.")
RUST = Skill(
    "house/rust", "rust", "Cares for tools.", "# Care\n\n- get the rust off a scythe\n\nOil it after."
)


def pair(skill: Skill, query: str, piece: str, *, split: str = "train") -> tuple:  # type: ignore[type-arg]
    cut_field = "body" if piece in skill.body else "description"
    text = skill.body if cut_field == "body" else skill.description
    start = text.index(piece)
    cut = cut_field, start, start + len(piece)
    return query, skill.doc_id, digest_of(skill), "house", *cut, split


def frame(*pairs: tuple) -> pl.DataFrame:  # type: ignore[type-arg]
    return pl.DataFrame(list(pairs), schema=PAIRS, orient="row")


BREW, OFF = "Use to brew black tea for guests.", "get the rust off a scythe"
ASKED = (
    pair(TEA, "brew black tea for guests", BREW),
    pair(TEA, "brew black tea for guests", BREW),
    pair(RUST, "get rust off a scythe", OFF, split="validation"),
)


def test_a_request_is_one_query_however_many_texts_it_has_and_its_skill_is_read_without_it() -> None:
    train, validation, shared = asked_of(frame(*ASKED), [RUST, TEA])
    assert [(q.query_id, q.text, q.row) for q in train] == [("house/tea", "brew black tea for guests", 1)]
    assert [(q.query_id, q.row) for q in validation] == [("house/rust", 0)]
    assert shared == 0
    assert train[0].without_passages(TEA).description.strip() == "Warms the pot first."
    assert validation[0].without_passages(RUST).body == "# Care\n\n- \n\nOil it after."


def test_words_of_request_and_passage_that_stand_elsewhere_too_are_cut() -> None:
    tea = TEA._replace(
        body="Guests come. How to brew black tea for guests, they ask. Warms the pot first of all, it does."
    )
    passage = "Warms the pot first"
    asked = asked_of(frame(pair(tea, "brew black tea for guests", passage), ASKED[-1]), [tea, RUST])
    assert asked.train[0].without_passages(tea).body == "Guests come. How to , they ask.  of all, it does."


def test_a_skill_of_several_requests_has_one_text_without_all_of_them() -> None:
    more = pair(TEA, "warm the pot", "Warms the pot first.")
    queries = asked_of(frame(*ASKED, more), [TEA, RUST]).train
    read = without_queries([TEA, RUST], queries)
    assert (len(queries), read[0].description.split(), read[1]) == (2, [], RUST)


def test_a_request_of_two_skills_is_none_and_counted() -> None:
    pairs = frame(*ASKED, pair(TEA, "Care for it", BREW), pair(RUST, "care for it!", OFF))
    train, _, shared = asked_of(pairs, [TEA, RUST])
    assert ([query.text for query in train], shared) == (["brew black tea for guests"], 2)


def test_pairs_of_another_corpus_or_text_are_refused() -> None:
    with pytest.raises(WrongInput, match="name the skill 'house/tea', which no --corpus holds"):
        asked_of(frame(*ASKED), [RUST])
    with pytest.raises(WrongInput, match="name the skill 'house/rust', which has another text now"):
        asked_of(frame(*ASKED), [TEA, RUST._replace(body=f"Read this first. {RUST.body}")])


@pytest.mark.parametrize(("kept", "lacks"), [(ASKED[:1], "validate on"), (ASKED[-1:], "train with")])
def test_pairs_of_one_side_are_refused(kept: Sequence[tuple], lacks: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(WrongInput, match=f"no request to {lacks}: make them of skills of more repositories"):
        asked_of(frame(*kept), [TEA, RUST])


@pytest.mark.parametrize("content", [None, b"no parquet", b""])
def test_what_is_no_file_of_pairs_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pairs.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WrongInput, match=r"pairs\.parquet cannot be read as pairs .*the columns query,"):
        read_pairs(path)
    pl.DataFrame({"query": ["brew tea"]}).write_parquet(path)
    with pytest.raises(WrongInput, match="doc_id"):
        read_pairs(path)
