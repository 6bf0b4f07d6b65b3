from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import StorageError
from tasks.retrieve.routing import bm25f as routing_described
from tasks.retrieve.routing.bm25f import Bm25fSettings, Described, Descriptions, described_of, lexical_of
from tasks.retrieve.routing.postings import (
    Postings,
    headings,
    joined,
    kept,
    postings_of,
    spelled_terms,
    term_counts,
    term_hash,
    term_sequence,
)
from tasks.retrieve.routing.skill import Skill


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("Loaves", ["loav"]),
        ("kneading", ["knead"]),
        ("useEffect", ["useeffect", "use", "effect"]),
        ("HTTPServer2", ["httpserver2", "http", "server"]),
        ("JSON", ["json"]),
        ("brötchen", ["brötchen"]),
        ("Brötchen", ["brötchen"]),
        ("抹茶碗", ["抹茶", "茶碗"]),
        ("茶", ["茶"]),
        ("x" * 41, []),
    ],
)
def test_a_word_is_looked_up_by(word: str, terms: list[str]) -> None:
    assert list(spelled_terms(word)) == terms


def test_terms_are_counted_and_stand_in_order() -> None:
    knead, dough = term_hash("knead"), term_hash("dough")
    assert term_counts("Knead dough; kneading doughs, dough") == {knead: 2, dough: 3}
    assert term_sequence("Knead dough; kneading") == [knead, dough, knead]
    assert term_counts("oven_temp proof-time") == term_counts("oven temp proof time")


@given(st.text(max_size=200))
def test_counts_are_those_of_the_sequence(text: str) -> None:
    sequence = term_sequence(text)
    assert term_counts(text) == {term: sequence.count(term) for term in sequence}


def test_a_hash_is_the_same_in_every_process() -> None:
    asked = "from tasks.retrieve.routing.postings import term_hash; print(term_hash('sourdough'))"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert int(said) == term_hash("sourdough")


BREAD = Skill("bread", "bread", "Bakes loaves", "# Dough\nKnead the dough.\n## Oven ##\nBake it.")
BEES = Skill("bees", "bees", "Looks after a hive", "Feed sugar syrup.")
BIKE = Skill("bike", "bike", "Mends tyres", "")
WORDS = st.lists(st.sampled_from(["dough", "oven", "hive", "tyre", "sugar", "bake"]), max_size=6).map(
    " ".join
)
SKILLS = st.lists(st.builds(Skill, st.just("id"), WORDS, WORDS, WORDS), max_size=6)


def same(a: Postings, b: Postings) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Postings.__slots__)


def counts(postings: Postings, word: str) -> dict[int, list[int]]:
    at = int(np.searchsorted(postings.terms, np.uint64(term_hash(word))))
    span = slice(postings.starts[at], postings.starts[at + 1])
    return dict(zip(postings.rows[span].tolist(), postings.counts[span].tolist(), strict=True))


def test_a_term_is_counted_by_field() -> None:
    postings = postings_of([BREAD, BEES])
    assert counts(postings, "dough") == {0: [0, 0, 1, 2]}
    assert counts(postings, "bread") == {0: [1, 0, 0, 0]}
    assert postings.lengths.tolist() == [[1, 2, 2, 7], [1, 4, 0, 3]]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("# One\n\n## Two ##\ntext\n#three\n", "One\nTwo"),
        ("no headings", ""),
        ("   ### In a way", "In a way"),
    ],
)
def test_headings_are_found(body: str, found: str) -> None:
    assert headings(body) == found


@given(SKILLS, SKILLS)
def test_joining_parts_gives_what_all_at_once_gives(some: list[Skill], more: list[Skill]) -> None:
    assert same(joined([postings_of(some), postings_of(more)]), postings_of([*some, *more]))


@given(SKILLS, SKILLS, st.data())
def test_joined_rows_take_the_places_that_they_are_given(
    some: list[Skill], more: list[Skill], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(some) + len(more))))
    made = joined([postings_of(some), postings_of(more)], np.argsort(np.array(order, dtype=np.int64)))
    assert same(made, postings_of([[*some, *more][row] for row in order]))


@given(SKILLS, st.data())
def test_what_is_kept_is_what_it_would_be_without_the_rest(skills: list[Skill], data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(skills), max_size=len(skills)))
    left = [skill for skill, stays in zip(skills, keep, strict=True) if stays]
    assert same(kept(postings_of(skills), np.array(keep, dtype=np.bool_)), postings_of(left))


def test_equal_texts_have_equal_sketches_and_others_hardly_any_bin_in_common() -> None:
    text = " ".join(f"word{i}" for i in range(300))
    other = " ".join(f"else{i}" for i in range(300))
    skills = [Skill(str(i), "n", "d", body) for i, body in enumerate((text, text, other))]
    first, second, third = postings_of(skills).sketches
    assert (first == second).all()
    assert (first == third).mean() < 0.2


def test_scores_are_bm25f_by_field_and_by_how_often_a_word_is_said() -> None:
    # Scores are bm25f.
    postings = postings_of([BREAD, BEES, BIKE])
    settings = Bm25fSettings((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), k1=2.0, rarity=1.0)
    rarity = np.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert lexical_of(postings, settings).scores("bees").tolist() == pytest.approx([0, rarity / (1 + 2), 0])
    # A term in the name weighs more than one in the body.
    named = Skill("a", "hive", "one two", "three four")
    told = Skill("b", "name", "one two", "hive four")
    scores = lexical_of(postings_of([named, told, BIKE])).scores("hive")
    assert scores[0] > scores[1] > scores[2] == 0
    # Repeating a word counts by its logarithm.
    lexical = lexical_of(postings_of([BREAD, BEES, BIKE]))
    once, thrice = lexical.scores("hive")[1], lexical.scores("hive hive hive")[1]
    assert thrice / once == pytest.approx(1 + np.log(3))
    # Only the weightiest terms of a query are asked.
    lexical = lexical_of(postings_of([BREAD, BEES, BIKE]), Bm25fSettings(terms=1))
    ((_, weight),) = lexical.weighed("hive hive tyres")
    assert weight > lexical_of(postings_of([BREAD, BEES, BIKE])).weighed("tyres")[0][1]
    # Function words count only by themselves.
    lexical = lexical_of(postings_of([BREAD, BEES, BIKE]))
    assert (lexical.scores("a hive") == lexical.scores("hive")).all()
    assert lexical.scores("a")[1] > 0


@given(query=st.lists(st.sampled_from(["hive", "tyres", "bread", "a", "unheard"]), min_size=1).map(" ".join))
def test_no_skill_scores_more_than_the_highest_that_a_query_can(query: str) -> None:
    lexical = lexical_of(postings_of([BREAD, BEES, BIKE]))
    assert lexical.scores(query).max() <= lexical.highest(query)


MARKET = [
    Skill("a", "bread", "bakes rye loaves", "Feed the bees, then mend the bike."),
    Skill("b", "bees", "looks after bees", "rye rye rye"),
    Skill("c", "bike", "mends a chain", ""),
]


def test_a_description_s_words_count_once_by_their_rarity_and_its_length_and_bodies_have_no_say() -> None:
    # Bodies have no say.
    scores = described_of(postings_of(MARKET)).scores("rye for the bees")
    assert scores[0] > 0 < scores[1]
    assert scores[2] == 0
    assert not described_of(postings_of(MARKET)).scores("feed then").any()
    # A word is as rare as it is among descriptions.
    scores = described_of(postings_of(MARKET)).scores("rye")
    frequency, rarity, mean = 1.0, np.log(1 + (3 - 1 + 0.5) / (1 + 0.5)), (4 + 4 + 4) / 3
    assert scores[0] == pytest.approx(rarity * frequency / (frequency + 1.5 * (0.25 + 0.75 * 4 / mean)))
    # A longer description scores less.
    wordy = Skill("d", "loaf", "rye " + "and many other things besides " * 3, "")
    scores = described_of(postings_of([*MARKET, wordy])).scores("rye")
    assert scores[0] > scores[3] > 0
    # An unknown word or an empty index finds nothing.
    assert not described_of(postings_of(MARKET)).scores("zither").any()
    assert described_of(postings_of([])).scores("bees").shape == (0,)
    assert lexical_of(postings_of([])).scores("hive").shape == (0,)
    described = described_of(postings_of(MARKET))
    assert described.scores("bees bees bees").tolist() == described.scores("bees").tolist()


def test_what_is_left_of_an_index_scores_as_if_it_were_made_of_that() -> None:
    left = kept(postings_of(MARKET), np.array([True, False, True]))
    whole = described_of(postings_of([MARKET[0], MARKET[2]]))
    for query in ("rye", "bees", "a chain", "bike bread"):
        assert described_of(left).scores(query).tolist() == whole.scores(query).tolist()


def test_they_are_made_when_first_asked_and_by_one_of_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = routing_described.described_of

    def counted(postings: Postings) -> Described:
        made.append(1)
        return make(postings)

    monkeypatch.setattr(routing_described, "described_of", counted)
    descriptions = Descriptions(postings_of(MARKET))
    assert not made
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: descriptions.scores("bees").tolist(), range(32)))
    assert len(made) == 1
    assert found == [described_of(postings_of(MARKET)).scores("bees").tolist()] * 32


def test_postings_that_contradict_themselves_are_damage() -> None:
    postings = postings_of(MARKET)
    wrong = replace(postings, rows=postings.rows + len(MARKET))
    with pytest.raises(StorageError, match="routing index is damaged"):
        Descriptions(wrong).scores("bees")
