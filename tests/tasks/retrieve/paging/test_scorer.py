from __future__ import annotations

import json

import numpy as np
import pytest

from tasks.evaluate.measures.evidence import EvidenceQuery
from tasks.retrieve.paging.scorer import FILE, GROUPS, NAMES, Scorer, chances, packaged_scorer, scorer_of
from tasks.train.paging_scorer import Example, fit, stored

FACETS, WORDS = NAMES.index("log_facets"), NAMES.index("words")
UNITS = 40


def features(facets: int, chance: np.random.Generator) -> np.ndarray:
    found = chance.normal(size=(len(NAMES), UNITS)).astype(np.float32)
    found[FACETS] = np.log(facets)
    return found


def leaning_on_words() -> Scorer:
    """Return a scorer for which words speak for a unit of a request of many facets, and against it of few."""
    zeros, ones = (np.full(len(NAMES), value, dtype=np.float32) for value in (0, 1))
    lean = zeros.copy()
    lean[WORDS] = 2
    mean = zeros.copy()
    mean[FACETS] = np.log(3)
    return Scorer(mean, ones, zeros, lean, 0.5)


def test_a_weight_leans_with_the_number_of_facets() -> None:
    scorer, given = leaning_on_words(), features(1, np.random.default_rng(0))
    few, as_most, many = (scorer.logits(with_facets(given, n)) for n in (1, 3, 9))
    step = 2 * np.log(3)
    assert few == pytest.approx(0.5 - step * given[WORDS], abs=1e-5)
    assert as_most == pytest.approx(np.full(UNITS, 0.5), abs=1e-5)
    assert many == pytest.approx(0.5 + step * given[WORDS], abs=1e-5)


def with_facets(given: np.ndarray, facets: int) -> np.ndarray:
    changed = given.copy()
    changed[FACETS] = np.log(facets)
    return changed


def test_what_the_groups_add_is_the_score_less_that_of_an_average_unit() -> None:
    chance = np.random.default_rng(1)
    drawn = [chance.normal(size=len(NAMES)).astype(np.float32) for _ in range(4)]
    scorer = Scorer(drawn[0], np.abs(drawn[1]) + 1, drawn[2], drawn[3], -1.5)
    given = features(5, chance)
    parts = scorer.by_group(given)
    assert parts.shape == (UNITS, len(GROUPS))
    assert parts.sum(axis=1) - 1.5 == pytest.approx(scorer.logits(given), abs=1e-3)


def test_fitting_finds_a_weight_that_leans() -> None:
    chance = np.random.default_rng(2)
    asked = EvidenceQuery("q", "d", "anything", (), None)
    examples = []
    for turn in range(80):
        given = features(1 if turn % 2 else 9, chance)
        needed = np.flatnonzero((given[WORDS] > 0) == (turn % 2 == 0)).tolist()
        examples.append(Example(asked, given, [[[unit]] for unit in needed]))
    scorer = fit(examples, penalty=1.0)
    assert scorer.lean[WORDS] > 5 * np.abs(np.delete(scorer.lean, [WORDS, FACETS])).max()
    assert scorer.lean[WORDS] > 10 * abs(scorer.weight[WORDS])
    right = [(chances(scorer.logits(e.features)) > 0.5).sum() for e in examples[:2]]
    assert min(right) > 0


def test_a_scorer_is_the_same_once_it_was_stored() -> None:
    scorer = leaning_on_words()
    given = features(4, np.random.default_rng(3))
    again = scorer_of(json.loads(json.dumps(stored(scorer))))
    assert again.logits(given) == pytest.approx(scorer.logits(given), abs=1e-4)


def test_the_packaged_scorer_leans() -> None:
    assert np.abs(packaged_scorer().lean).max() > 0.01


@pytest.mark.parametrize("change", [{"version": 2}, {"features": {"words": [0, 1, 0, 0]}}])
def test_a_scorer_of_another_version_or_other_features_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="fit it anew"):
        scorer_of(json.loads(FILE.read_text("utf-8")) | change)
