from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.duplicates.shingles import Hashes, jaccard, jaccards, shingle_sets

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


@pytest.mark.parametrize("other", ["one two three four six five", "one two three four five sixth"])
def test_order_and_spelling_make_one(other: str) -> None:
    assert not np.array_equal(shingles(other), shingles("one two three four five six"))


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


@pytest.mark.parametrize("text", ["", "...", "one two three four", "\n"])
def test_a_text_of_fewer_than_five_words_has_no_shingles(text: str) -> None:
    assert shingles(text).size == 0
    assert jaccard(shingles(text), shingles(text)) == 0


def test_the_hashes_are_what_they_always_were() -> None:
    assert shingles("Knead the dough for ten minutes.").tolist() == [2433198270401921401, 8450113413309536052]


def test_two_hundred_thousand_shingles_share_no_hash() -> None:
    text = " ".join(f"{a}{b}" for a in range(450) for b in range(450))
    assert shingles(text).size == len(tuples(text))


def test_one_set_is_compared_with_many_as_with_each() -> None:
    # Of 5,000 hashes some share their place in the table.
    texts = [" ".join(f"w{n * k}" for n in range(5000)) for k in (1, 1, 2, 3)]
    texts += [" ".join(f"w{n}" for n in range(start, start + 5)) for start in range(2000)]
    one, *others = shingle_sets(texts)
    assert jaccards(one, others).tolist() == [jaccard(one, other) for other in others]
    assert jaccards(others[-1], others).tolist() == [jaccard(others[-1], other) for other in others]
