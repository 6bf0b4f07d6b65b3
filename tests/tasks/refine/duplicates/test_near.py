# ruff: noqa: S311 (seeded, not secret)

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.duplicates import near
from tasks.refine.duplicates.near import (
    BANDS,
    Index,
    NearFolds,
    NearLimits,
    SignatureRule,
    near_folds,
    signatures,
    survivors,
    verified,
)
from tasks.refine.duplicates.shingles import Hashes, jaccard, jaccards, shingle_sets

RULE = SignatureRule.for_threshold(0.85)


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.85, 0.9])
def test_a_pair_at_the_threshold_is_hardly_ever_missed(threshold: float) -> None:
    rows = SignatureRule.for_threshold(threshold).rows
    assert (1 - threshold**rows) ** BANDS <= 0.005
    assert (1 - threshold ** (rows + 1)) ** BANDS > 0.005


def test_a_text_has_one_number_a_band_and_one_without_shingles_none() -> None:
    found = signatures(["one two three four five six", "too short"], RULE)
    assert found.schema == {"size": pl.Int32, "bands": pl.Binary}
    assert found["size"].to_list() == [2, 0]
    assert [len(row) for row in found["bands"]] == [4 * BANDS, 0]
    assert "20x8" in SignatureRule(8).name != SignatureRule(9).name


def test_more_texts_than_are_taken_at_once_keep_their_order() -> None:
    texts = [f"a text of number {n} and no other" for n in range(1203)]
    together = signatures(iter(texts), RULE)
    assert together.height == 1203
    assert together[1100:1101].equals(signatures([texts[1100]], RULE))


N = 9
PAIRS = st.lists(
    st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)).filter(lambda p: p[0] < p[1]), unique=True
)


def onto(pairs: list[tuple[int, int]]) -> list[int]:
    found = survivors(np.array(pairs, np.int64).reshape(-1, 2), N, max_cluster=1000)
    return [int(number) for number in found]


@given(PAIRS)
def test_each_text_is_near_its_survivor_and_no_two_survivors_are_near(pairs: list[tuple[int, int]]) -> None:
    found = onto(pairs)
    assert all((found[text], text) in pairs for text in range(N) if found[text] != text)
    assert not [p for p in pairs if found[p[0]] == p[0] and found[p[1]] == p[1]]


NOTHING = np.zeros((0, 2), np.int64), np.zeros(0)


class Texts:
    """Texts by rank; notes whose shingles were asked for."""

    def __init__(self, texts: list[str], threshold: float = 0.85) -> None:
        self.texts = texts
        signed = signatures(texts, SignatureRule.for_threshold(threshold))
        joined = b"".join(row or bytes(4 * BANDS) for row in signed["bands"])
        self.bands = np.frombuffer(joined, np.dtype("<u4")).reshape(-1, BANDS)
        self.sizes = signed["size"].to_numpy().astype(np.int64)
        self.sets = list(shingle_sets(texts))
        self.asked: list[list[int]] = []

    def sets_of(self, wanted: Index) -> dict[int, Hashes]:
        self.asked.append(wanted.tolist())
        return {number: self.sets[number] for number in wanted.tolist()}

    def folds(self, limits: NearLimits | None = None, known: NearFolds | None = None) -> NearFolds:
        before = (known.pairs, known.similarity) if known else NOTHING
        return near_folds(self.bands, self.sizes, self.sets_of, before, limits or NearLimits())

    def by_comparing_all(self, threshold: float = 0.85) -> list[int]:
        sets = self.sets
        pairs = [p for p in combinations(range(len(sets)), 2) if jaccard(sets[p[0]], sets[p[1]]) >= threshold]
        found = survivors(np.array(pairs, np.int64).reshape(-1, 2), len(sets), max_cluster=len(sets))
        return [int(number) for number in found]


def copies(rng: random.Random, base: list[str], changes: list[int]) -> list[str]:
    """Return a copy of a text for each number of words to replace."""
    found = []
    for number in changes:
        words = list(base)
        for at in rng.sample(range(len(words)), number):
            words[at] = f"new{rng.randrange(10**6)}"
        found.append(" ".join(words))
    return found


def families(seed: int, number: int = 40) -> list[str]:
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(number):
        base = [f"w{rng.randrange(500)}" for _ in range(rng.randint(80, 300))]
        texts += copies(rng, base, [0, 1, 2, 4, 6, 9, 30])
    rng.shuffle(texts)
    return texts


@pytest.mark.parametrize("threshold", [0.6, 0.85])
def test_the_survivors_are_those_of_comparing_all_with_all(threshold: float) -> None:
    texts = Texts(families(1), threshold)
    found = texts.folds(NearLimits(threshold=threshold))
    assert found.onto.tolist() == texts.by_comparing_all(threshold)
    assert 40 < np.unique(found.onto).size < 240
    assert found.uncompared == 0
    exact = [jaccard(texts.sets[a], texts.sets[b]) for a, b in found.pairs.tolist()]
    assert found.similarity.tolist() == exact
    assert min(exact) < threshold
    assert all(a < b for a, b in found.pairs.tolist())


def test_a_large_bucket_of_survivors_is_as_it_was_another_night() -> None:
    rng = random.Random(12)
    texts = Texts(copies(rng, [f"w{n}" for n in range(300)], [4] * 30))
    limits = NearLimits(threshold=0.95, max_bucket=2)
    before = texts.folds(limits)
    texts.asked.clear()
    again = texts.folds(limits, known=before)
    assert (again.onto.tolist(), len(again.pairs)) == (list(range(30)), len(before.pairs))
    assert texts.asked == []


def test_only_what_is_new_is_compared() -> None:
    family = families(5, 10)
    before = Texts(family).folds()
    grown = Texts([*family, family[-1] + " and so on"])
    found = grown.folds(known=before)
    assert found.onto.tolist() == grown.by_comparing_all()
    assert all(len(family) in pair for pair in found.pairs[len(before.pairs) :].tolist())


@pytest.mark.parametrize("seed", range(20))
def test_who_folds_onto_whom_is_the_same_whatever_was_known_before(seed: int) -> None:
    # Chains: each text is near the next, fewer and fewer words being as they were.
    rng, words = random.Random(seed), [f"w{n}" for n in range(200)]
    chain = [" ".join([*(f"new{n}" for n in range(at)), *words[at:]]) for at in range(0, 60, 4)]
    texts = Texts(rng.sample(chain, len(chain)))
    some = np.sort(np.array(rng.sample(range(len(chain)), 10)))
    before = Texts([texts.texts[number] for number in some]).folds()
    found = texts.folds(known=replace(before, pairs=some[before.pairs]))
    assert found.onto.tolist() == texts.by_comparing_all()
    assert 1 < np.unique(found.onto).size < len(chain)


def test_texts_without_shingles_are_near_none() -> None:
    texts = Texts(["too short", "too short", "", "one two three four five"])
    assert texts.folds().onto.tolist() == [0, 1, 2, 3]
    assert len(texts.folds().pairs) == 0


def test_a_template_of_which_there_are_many_is_compared_with_its_best_few() -> None:
    rng = random.Random(6)
    texts = Texts(copies(rng, [f"w{n}" for n in range(300)], [1] * 400))
    found = texts.folds(NearLimits(max_bucket=4))
    assert found.onto.tolist() == [0] * 400
    assert len(found.pairs) < 400 * 12
    assert found.uncompared == 0


def test_the_best_few_of_a_bucket_do_not_decide_for_the_rest() -> None:
    # Two families that share bands, not near each other: the better fills the first places.
    rng = random.Random(8)
    base = [f"w{n}" for n in range(300)]
    other = base[:285] + [f"v{n}" for n in range(15)]
    other[100], other[50] = "x", "y"
    texts = Texts(copies(rng, base, [0] + [1] * 20) + copies(rng, other, [0] + [1] * 20))
    found = texts.folds(NearLimits(max_bucket=1))
    assert found.onto.tolist() == texts.by_comparing_all()
    assert found.uncompared == 0


def test_texts_with_more_look_alikes_than_are_compared_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_HUBS", (1, 2))
    rng = random.Random(9)
    texts = Texts(copies(rng, [f"w{n}" for n in range(300)], [4] * 30))
    found = texts.folds(NearLimits(max_bucket=2, threshold=0.95))
    assert 0 < found.uncompared <= 30


def test_a_cluster_over_the_cap_has_a_second_survivor() -> None:
    texts = Texts(copies(random.Random(10), [f"w{n}" for n in range(300)], [1] * 10))
    assert texts.folds(NearLimits(max_cluster=6)).onto.tolist() == [0] * 7 + [7] * 3
    assert texts.folds(NearLimits(max_cluster=0)).onto.tolist() == [*range(10)]


def test_no_more_shingles_are_held_at_once_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts(families(11, 6))
    pairs = np.array(list(combinations(range(20), 2)), np.int64)
    whole = verified(pairs, texts.sizes, texts.sets_of)
    monkeypatch.setattr(near, "_SHINGLES_AT_ONCE", 1000)
    texts.asked.clear()
    assert verified(pairs, texts.sizes, texts.sets_of).tolist() == whole.tolist()
    held = [sum(texts.sizes[number] for number in numbers) for numbers in texts.asked]
    assert len(held) > 10
    assert all(size <= 1000 or len(n) == 2 for size, n in zip(held, texts.asked, strict=True))


TEXTS = st.lists(st.sampled_from(["flour", "Water", "salt", "héron", "x_1", "7", ".", "\n", "--"])).map(
    " ".join
)


def shingles(text: str) -> Hashes:
    (found,) = shingle_sets([text])
    return found


def tuples(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


@given(TEXTS, TEXTS)
def test_hashes_are_as_alike_as_the_words_they_stand_for(one: str, other: str) -> None:
    sets = tuples(one), tuples(other)
    assert (shingles(one).size, shingles(other).size) == (len(sets[0]), len(sets[1]))
    expected = len(sets[0] & sets[1]) / max(len(sets[0] | sets[1]), 1)
    assert jaccard(shingles(one), shingles(other)) == pytest.approx(expected)


@given(st.lists(TEXTS, max_size=5))
def test_a_text_has_the_same_shingles_whatever_stands_beside_it(texts: list[str]) -> None:
    together = list(shingle_sets(texts))
    assert len(together) == len(texts)
    assert all(np.array_equal(found, shingles(text)) for found, text in zip(together, texts, strict=True))


def test_many_long_texts_are_taken_in_blocks() -> None:
    texts = [" ".join(f"w{n * k}" for n in range(60_000)) for k in (1, 2, 3)]
    together = list(shingle_sets(iter(texts)))
    assert [found.size for found in together] == [59_996] * 3
    assert np.array_equal(together[2], shingles(texts[2]))


@pytest.mark.parametrize(
    "same",
    [
        "one TWO three four five six",
        "one, two; three\n\n- four `five` six.",
        "one\ufe0f two three \U0001f600 four five six",
    ],
)
def test_case_signs_and_white_space_make_no_difference(same: str) -> None:
    assert np.array_equal(shingles(same), shingles("one two three four five six"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("揉面团十分钟", 2),
        ("パンを焼く時", 2),
        ("ขนมปังอุ่น", 6),
        ("빵을 굽고 식힌 뒤 먹는다", 1),
        ("आटा गूंध कर रोटी बनाओ", 1),
        ("bake 面团 for ten min", 2),
    ],
    ids=["Han", "kana", "Thai", "Hangul", "Devanagari", "mixed"],
)
def test_a_character_is_a_word_where_no_spaces_are_written(text: str, expected: int) -> None:
    assert shingles(text).size == expected


def test_the_hashes_are_what_they_always_were() -> None:
    assert shingles("Knead the dough for ten minutes.").tolist() == [2433198270401921401, 8450113413309536052]


def test_one_set_is_compared_with_many_as_with_each() -> None:
    # Of 5,000 hashes some share their place in the table.
    texts = [" ".join(f"w{n * k}" for n in range(5000)) for k in (1, 1, 2, 3)]
    texts += [" ".join(f"w{n}" for n in range(start, start + 5)) for start in range(2000)]
    one, *others = shingle_sets(texts)
    assert jaccards(one, others).tolist() == [jaccard(one, other) for other in others]
    assert jaccards(others[-1], others).tolist() == [jaccard(others[-1], other) for other in others]
