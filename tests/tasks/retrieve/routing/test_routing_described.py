from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from storage.errors import StorageError
from tasks.retrieve.routing import bm25f as routing_described
from tasks.retrieve.routing.bm25f import Described, Descriptions, described_of
from tasks.retrieve.routing.postings import Postings, kept, postings_of
from tasks.retrieve.routing.skill import Skill

MARKET = [
    Skill("a", "bread", "bakes rye loaves", "Feed the bees, then mend the bike."),
    Skill("b", "bees", "looks after bees", "rye rye rye"),
    Skill("c", "bike", "mends a chain", ""),
]


def test_bodies_have_no_say() -> None:
    scores = described_of(postings_of(MARKET)).scores("rye for the bees")
    assert scores[0] > 0 < scores[1]
    assert scores[2] == 0
    assert not described_of(postings_of(MARKET)).scores("feed then").any()


def test_a_word_is_as_rare_as_it_is_among_descriptions() -> None:
    scores = described_of(postings_of(MARKET)).scores("rye")
    frequency, rarity, mean = 1.0, np.log(1 + (3 - 1 + 0.5) / (1 + 0.5)), (4 + 4 + 4) / 3
    assert scores[0] == pytest.approx(rarity * frequency / (frequency + 1.5 * (0.25 + 0.75 * 4 / mean)))


def test_a_word_counts_once_however_often_it_is_asked() -> None:
    described = described_of(postings_of(MARKET))
    assert described.scores("bees bees bees").tolist() == described.scores("bees").tolist()


def test_a_longer_description_scores_less() -> None:
    wordy = Skill("d", "loaf", "rye " + "and many other things besides " * 3, "")
    scores = described_of(postings_of([*MARKET, wordy])).scores("rye")
    assert scores[0] > scores[3] > 0


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


def test_an_unknown_word_or_an_empty_index_finds_nothing() -> None:
    assert not described_of(postings_of(MARKET)).scores("zither").any()
    assert described_of(postings_of([])).scores("bees").shape == (0,)
