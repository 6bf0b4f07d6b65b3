from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import EncodingTooLong
from tasks.models.encoder import OnnxEncoder
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.paging.terms import WordVectors
from tasks.retrieve.served_index import ServedIndex
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import MINILM, Export, SkillRoot

BEES = "local/market/bees"


def long_text() -> str:
    """Return the bees with so many sections beside theirs that encoding them takes several batches."""
    rows = (
        f"\n## Apiary {n}\n\n" + "\n".join(f"- Row {i} of {n} is painted." for i in range(9))
        for n in range(60)
    )
    return SKILLS["bees"] + "".join(rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> SkillRoot:
    made = SkillRoot.below(tmp_path_factory.mktemp("long"), minilm_export, {"bees": long_text()})
    made.publish(nodes=False)
    return made


@pytest.fixture(scope="module")
def unlimited(root: SkillRoot) -> ServedIndex:
    return index(root, None)


def index(root: SkillRoot, seconds: float | None) -> ServedIndex:
    return ServedIndex(root.root, encoder=MINILM, classifier=LocalClassifier, page_seconds=seconds)


@pytest.mark.parametrize("method", ["facets", "chunks"])
def test_a_page_over_a_document_without_vectors_goes_by_words_alone_after_its_time(
    root: SkillRoot, method: str
) -> None:
    answers = index(root, 1e-9)
    for _ in range(2):  # the second request finds what the first one kept
        found = answers.page(BEES, "when to feed sugar syrup in October", budget=120, method=method)
        assert found["by_words"] is True
        assert "sugar syrup" in found["context"]


def test_a_page_within_its_time_says_nothing_of_words(root: SkillRoot) -> None:
    found = index(root, 600).page(BEES, "when to feed sugar syrup", budget=120, method="facets")
    assert "by_words" not in found


def test_a_query_is_encoded_whatever_the_time(root: SkillRoot) -> None:
    assert index(root, 1e-9).search("keep bees", 1)["results"][0]["doc_id"] == BEES


@pytest.mark.parametrize("threads", [1, 2])
def test_encoding_stops_after_its_seconds_and_says_how_far_it_came(root: SkillRoot, threads: int) -> None:
    encoder = OnnxEncoder(root.root.folder / root.model, threads=threads, seconds=1e-9)
    with pytest.raises(EncodingTooLong, match=r"\d+ of 400 windows were encoded in 1e-09 seconds"):
        encoder.encode([f"row {n} is painted" for n in range(400)])


@given(st.lists(st.text(), max_size=6))
def test_word_vectors_are_unit_vectors_and_equal_for_equal_texts(texts: list[str]) -> None:
    vectors = WordVectors().encode([*texts, *texts])
    assert vectors.shape == (2 * len(texts), 1024)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (vectors[: len(texts)] == vectors[len(texts) :]).all()


def test_texts_that_share_words_are_nearer_than_those_that_share_none() -> None:
    asked, near, far = WordVectors().encode(
        ["feed sugar syrup", "Sugar syrup is fed late.", "paint the rows"]
    )
    assert asked @ near > 0.4
    assert asked @ far < 0.1


@pytest.mark.parametrize(
    ("query", "unmatched"),
    [
        ("zzzz qqqq", True),
        ("Sirup füttern", True),
        ("when to feed SUGAR", False),
        ("is it?", False),
        ("窯", True),
    ],
)
def test_a_page_says_when_no_word_of_the_request_stands_in_the_skill(
    unlimited: ServedIndex, query: str, unmatched: bool
) -> None:
    found = unlimited.page(BEES, query, budget=60, method="chunks")
    assert found.get("unmatched", False) is unmatched
