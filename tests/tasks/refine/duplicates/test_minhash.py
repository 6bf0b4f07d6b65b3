# ruff: noqa: S311 (seeded, not secret)

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from tasks.refine.duplicates.near import BANDS, SignatureRule, signatures
from tasks.refine.duplicates.shingles import jaccard, shingle_sets

RULE = SignatureRule.for_threshold(0.85)


def bands(texts: list[str], rule: SignatureRule = RULE) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    joined = b"".join(signatures(texts, rule)["bands"])
    return np.frombuffer(joined, "<u4").reshape(-1, BANDS)


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.85, 0.9])
def test_a_pair_at_the_threshold_is_hardly_ever_missed(threshold: float) -> None:
    rows = SignatureRule.for_threshold(threshold).rows
    assert (1 - threshold**rows) ** BANDS <= 0.005
    assert (1 - threshold ** (rows + 1)) ** BANDS > 0.005


@pytest.mark.parametrize(("threshold", "rows"), [(0.85, 8), (1.0, 16), (0.999, 16), (0.01, 1)])
def test_rows_stay_within_bounds(threshold: float, rows: int) -> None:
    assert SignatureRule.for_threshold(threshold).rows == rows


def test_a_signature_is_named_after_how_it_is_made() -> None:
    assert SignatureRule(8).name != SignatureRule(9).name
    assert "20x8" in SignatureRule(8).name


def test_a_text_has_one_number_a_band_and_one_without_shingles_none() -> None:
    found = signatures(["one two three four five six", "too short"], RULE)
    assert found.schema == {"size": pl.Int32, "bands": pl.Binary}
    assert found["size"].to_list() == [2, 0]
    assert [len(row) for row in found["bands"]] == [4 * BANDS, 0]


def test_more_texts_than_are_taken_at_once_keep_their_order() -> None:
    texts = [f"a text of number {n} and no other" for n in range(1203)]
    together = signatures(iter(texts), RULE)
    assert together.height == 1203
    assert together[1100:1101].equals(signatures([texts[1100]], RULE))


def test_no_texts_have_no_signatures() -> None:
    assert signatures([], RULE).is_empty()


def test_near_texts_share_bands_as_often_as_the_formula_says_and_others_do_not() -> None:
    rng = random.Random(3)
    words = [f"w{n}" for n in range(300)]
    pairs = []
    for _ in range(200):
        text = rng.choices(words, k=400)
        other = list(text)
        for at in rng.sample(range(400), 12):
            other[at] = "other"
        pairs += [" ".join(text), " ".join(other)]
    found, sets = bands(pairs), list(shingle_sets(pairs))
    shared = (found[0::2] == found[1::2]).mean()
    expected = np.mean([jaccard(a, b) ** RULE.rows for a, b in zip(sets[0::2], sets[1::2], strict=True)])
    assert shared == pytest.approx(expected, abs=0.05)
    assert (found[0::2] == np.roll(found[1::2], 1, axis=0)).mean() == 0
