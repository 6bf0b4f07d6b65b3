from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.seal import folder_holds
from tasks.models import adapted_encoder
from tasks.models.adapted_encoder import WIDTH, base_tokenizer, token_vectors
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.learned_leg import QUERY, LearnedLeg, Retriever, packaged_retriever, unit
from tasks.retrieve.routing.router import Router, RouterSettings
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.skill_tokens import kept_tokens, skill_tokens_of
from tests.support.models.routing_material import SKILLS

TOKENS = skill_tokens_of(SKILLS)
REQUEST = "My bicycle lost its air."


@pytest.fixture(scope="module")
def model() -> Retriever:
    return packaged_retriever(None)


@pytest.fixture(scope="module")
def vectors(model: Retriever) -> np.ndarray:
    return model.skills(TOKENS)


def test_vectors_have_length_one_whatever_a_text_holds(model: Retriever, vectors: np.ndarray) -> None:
    bare = skill_tokens_of([Skill("a/b", "", "", ""), *SKILLS[:1]])
    for rows in (
        vectors,
        model.skills(bare),
        model.requests([REQUEST, "", "\u200b"])[0],
    ):
        assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-3)
    assert model.skills(skill_tokens_of([])).shape == (0, WIDTH)


@settings(max_examples=10)
@given(keep=st.lists(st.booleans(), min_size=len(SKILLS), max_size=len(SKILLS)))
def test_a_skills_vector_does_not_depend_on_the_others(keep: list[bool]) -> None:
    rows = np.flatnonzero(keep)
    found = packaged_retriever(None).skills(kept_tokens(TOKENS, rows))
    np.testing.assert_array_equal(found, packaged_retriever(None).skills(TOKENS)[rows])


def test_the_nearest_skill_to_a_request_serves_it(model: Retriever, vectors: np.ndarray) -> None:
    [(cosines, share, *_)] = LearnedLeg(vectors, lambda: model).cosines([REQUEST])
    assert "tyre" in SKILLS[int(cosines.argmax())].doc_id
    assert share == 1


def test_what_a_body_says_counts(model: Retriever) -> None:
    plain, told = (
        model.skills(skill_tokens_of([Skill("a/b", "helper", "Helps at home.", body)]))[0]
        for body in ("See the list.", "Patch the inner tube of the bicycle tyre, and pump in air. " * 5)
    )
    asked = model.requests([REQUEST])[0][0]
    assert told @ asked > plain @ asked + 0.02


def test_of_a_long_request_its_share_that_is_read_counts(
    minilm: OnnxEncoder, model: Retriever, vectors: np.ndarray
) -> None:
    long = " ".join(["the bicycle lost its air"] * 60)
    count = len(base_tokenizer().encode(long, add_special_tokens=False).ids)
    assert model.requests([long])[1][0] == pytest.approx(QUERY / count)
    leg = LearnedLeg(vectors, lambda: model)
    router = Router.from_documents(SKILLS, minilm, learned=leg, settings=RouterSettings(learned=2.0))
    whole, part = (router.parts(text)["learned"] for text in (REQUEST, long))
    assert whole.std() == pytest.approx(2, abs=0.01)
    assert part.std() == pytest.approx(2 * QUERY / count, abs=0.01)


@pytest.mark.parametrize(
    ("request_", "share"), [("", 0), ("\u4fee\u7406\u81ea\u8f66", 0), (REQUEST + " x" * 2000, 0.03)]
)
def test_what_is_not_read_of_a_request_does_not_count(model: Retriever, request_: str, share: float) -> None:
    assert model.requests([request_])[1][0] == pytest.approx(share, abs=0.02)


def test_vectors_of_tokens_are_kept_and_made_again_where_they_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, read = np.random.default_rng(0), list[int]()
    made = unit(rng.normal(size=(40, WIDTH))).astype(np.float16)
    monkeypatch.setattr(adapted_encoder, "model_cache", lambda: tmp_path)
    monkeypatch.setattr(adapted_encoder, "_read_alone", lambda: read.append(1) or made)
    for _ in range(2):
        np.testing.assert_array_equal(token_vectors(), made)
    assert len(read) == 1
    (folder,) = tmp_path.iterdir()
    (folder / "vectors.npy").write_bytes(b"gone")
    np.testing.assert_array_equal(token_vectors(), made)
    assert len(read) == 2
    assert folder_holds(folder)
    monkeypatch.setattr(adapted_encoder, "model_cache", lambda: Path("/dev/null"))
    np.testing.assert_array_equal(token_vectors(), made)
