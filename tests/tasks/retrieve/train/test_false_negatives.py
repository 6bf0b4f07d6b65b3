from __future__ import annotations

import numpy as np
import pytest

from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.false_negatives import FalseNegatives, FalseNegativeSettings, trigrams

_BODY = "scald every seed with hot water before any of it goes into your bowl of flour"
_WORDS = _BODY.split()


def judged(name: str, body: str, cosine: float) -> str | None:
    """Return the layer by which a skill is as good as one named `rye bread` whose body is `_WORDS`."""
    skills = [Skill("a", "Rye bread", "", " ".join(_WORDS)), Skill("b", name, "", body)]
    vectors = np.array([[1, 0], [cosine, np.sqrt(1 - cosine**2)]], dtype=np.float32)
    return FalseNegatives(skills, vectors, FalseNegativeSettings(body=0.5, embedding=0.9)).layer(0, 1)


def version(kept: int) -> str:
    """Return a body with the first words of the other's, and new ones after them."""
    return " ".join([*_WORDS[:kept], *(f"new{n}" for n in range(len(_WORDS) - kept))])


@pytest.mark.parametrize(
    ("name", "layer"), [("rye-bread", "name"), ("RYE_Bread", "name"), ("rye breads", None), ("rye", None)]
)
def test_skills_of_one_name_are_false_and_of_a_similar_one_are_not(name: str, layer: str | None) -> None:
    assert judged(name, "Strike while it is hot.", 0.0) == layer


@pytest.mark.parametrize(("kept", "layer"), [(16, "body"), (13, "body"), (11, None), (0, None)])
def test_bodies_that_share_half_their_trigrams_are_false_and_fewer_are_not(
    kept: int, layer: str | None
) -> None:
    # Of 14 trigrams each, 11 shared ones make a Jaccard similarity of 11 / 17, and 9 one of 9 / 19.
    assert len(_WORDS) == 16
    one, other = trigrams(" ".join(_WORDS)), trigrams(version(kept))
    shared = len(set(one.tolist()) & set(other.tolist()))
    assert (shared / (28 - shared) >= 0.5) == (layer is not None)

    assert judged("anvil", version(kept), 0.0) == layer


@pytest.mark.parametrize(("cosine", "layer"), [(0.95, "embedding"), (0.91, "embedding"), (0.89, None)])
def test_descriptions_that_mean_the_same_are_false_and_similar_ones_are_not(
    cosine: float, layer: str | None
) -> None:
    assert judged("anvil", "Strike while it is hot.", cosine) == layer


def test_the_first_layer_that_catches_is_told() -> None:
    assert judged("rye bread", " ".join(_WORDS), 1.0) == "name"
    assert judged("anvil", " ".join(_WORDS), 1.0) == "body"


def test_texts_of_fewer_than_three_words_have_nothing_in_common() -> None:
    assert trigrams("two words").tolist() == []
    skills = [Skill("a", "a", "", ""), Skill("b", "b", "", "")]
    settings = FalseNegativeSettings()
    assert FalseNegatives(skills, np.eye(2, dtype=np.float32), settings).layer(0, 1) is None


def test_a_filter_that_is_off_finds_none() -> None:
    skills = [Skill(doc_id, "Rye bread", "", _BODY) for doc_id in ("a", "b")]
    vectors = np.array([[1, 0], [1, 0]], dtype=np.float32)

    assert FalseNegatives(skills, vectors, FalseNegativeSettings()).layer(0, 1) == "name"
    assert FalseNegatives(skills, vectors, FalseNegativeSettings(drop=False)).layer(0, 1) is None
