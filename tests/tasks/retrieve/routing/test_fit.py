"""The learned leg, and the fit: how near a skill is to a request, and how likely it serves it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.seal import folder_holds
from tasks.models import adapted_encoder
from tasks.models.adapted_encoder import WIDTH, base_tokenizer, token_vectors
from tasks.models.encoder import OnnxEncoder
from tasks.models.token_states import unit
from tasks.retrieve.routing.fit import FEATURES, FitModel, Leading, evidence_of, packaged_fit
from tasks.retrieve.routing.learned_leg import QUERY, LearnedLeg, Retriever, packaged_retriever
from tasks.retrieve.routing.router import Router, RouterSettings
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.skill_tokens import kept_tokens, skill_tokens_of
from tests.support.models.routing_material import SKILLS

_SCORES = st.lists(st.floats(-5, 50, width=32), min_size=1, max_size=40).map(
    lambda s: sorted(s, reverse=True)
)


def leading(scores: list[float]) -> Leading:
    """Return what was found of skills with these scores, best first."""
    found = np.array(scores)
    return Leading(found, found / 50, found, found / 50)


@pytest.fixture(scope="module")
def router(minilm: OnnxEncoder) -> Router:
    return Router.from_documents(SKILLS, minilm, fit=packaged_fit())


@given(scores=_SCORES)
def test_the_best_skill_alone_has_a_margin_above_nothing(scores: list[float]) -> None:
    margins = evidence_of(leading(scores), 100, len(scores))[:, FEATURES.index("margin")]
    assert margins[0] >= 0
    assert (margins[1:] <= 0).all()
    assert margins[0] == (scores[0] - scores[1] if len(scores) > 1 else 0)


@given(scores=_SCORES, rows=st.integers(1, 10**6))
def test_a_fit_is_a_probability_whatever_was_found(scores: list[float], rows: int) -> None:
    evidence = evidence_of(leading(scores), rows, len(scores))
    fits = packaged_fit().chances(evidence)
    assert evidence.shape == (len(scores), len(FEATURES))
    assert fits.shape == (len(scores),)
    assert ((fits >= 0) & (fits <= 1)).all()


@given(scores=_SCORES, more=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20))
def test_what_is_found_beyond_those_compared_changes_no_evidence(
    scores: list[float], more: list[float]
) -> None:
    few = leading(scores)
    many = Leading(*(np.concatenate([values, np.array(more)]) for values in few))
    compared = len(scores)
    np.testing.assert_array_equal(
        evidence_of(many, 100, compared)[:compared], evidence_of(few, 100, compared)
    )


def test_a_model_is_read_as_it_is_told() -> None:
    model = FitModel(np.linspace(-1, 1, len(FEATURES)), 0.25, 0.5)
    told = json.loads(json.dumps(model.told()))
    assert list(told["weights"]) == list(FEATURES)
    assert (told["bias"], told["least"]) == (0.25, 0.5)
    assert np.allclose([*told["weights"].values()], model.weights, atol=1e-4)


def test_a_request_that_a_skill_serves_fits_better_than_a_foreign_one_and_its_name_fits(
    router: Router,
) -> None:
    # A request that a skill serves fits better than a foreign one.
    served = router.rank("My bicycle has a flat tyre.", 1)[0]
    foreign = router.rank("Prepare the quarterly statement of value added tax", 1)[0]
    assert served.fit is not None
    assert foreign.fit is not None
    assert foreign.fit < packaged_fit().least < served.fit
    # A skill that is called by its name fits.
    assert router.rank("tyre-repair", 1)[0].fit == 1.0


def test_without_a_model_no_fit_is_known(minilm: OnnxEncoder) -> None:
    found = Router.from_documents(SKILLS, minilm).rank("sharpen a blade", 3)
    assert [one.fit for one in found] == [None] * 3
    assert set(found[0].evidence) == set(FEATURES)


@given(scores=_SCORES, read=st.lists(st.floats(-20, 20), min_size=1, max_size=30))
def test_what_is_read_well_fits_better_and_no_unread_skill_fits_best(
    scores: list[float], read: list[float]
) -> None:
    evidence, told = evidence_of(leading(scores), 100, len(scores)), np.array(read[: len(scores)])
    model = packaged_fit()._replace(reading=np.array([-1.0, 0.5, 0.5, 0.3, 0.1]))
    fits, better = model.chances(evidence, told), model.chances(evidence, told + 1.0)
    assert (better[: len(told)] >= fits[: len(told)]).all()
    assert fits.max() == fits[: len(told)].max()
    np.testing.assert_array_equal(packaged_fit().chances(evidence, told), packaged_fit().chances(evidence))


SKILL_TOKENS = skill_tokens_of(SKILLS)


AIRLESS = "My bicycle lost its air."


@pytest.fixture(scope="module")
def retriever() -> Retriever:
    return packaged_retriever(None)


@pytest.fixture(scope="module")
def vectors(retriever: Retriever) -> np.ndarray:
    return retriever.skills(SKILL_TOKENS)


def test_vectors_have_length_one_whatever_a_text_holds(retriever: Retriever, vectors: np.ndarray) -> None:
    bare = skill_tokens_of([Skill("a/b", "", "", ""), *SKILLS[:1]])
    for rows in (
        vectors,
        retriever.skills(bare),
        retriever.requests([AIRLESS, "", "\u200b"])[0],
    ):
        assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-3)
    assert retriever.skills(skill_tokens_of([])).shape == (0, WIDTH)


@settings(max_examples=10)
@given(keep=st.lists(st.booleans(), min_size=len(SKILLS), max_size=len(SKILLS)))
def test_a_skills_vector_does_not_depend_on_the_others(keep: list[bool]) -> None:
    rows = np.flatnonzero(keep)
    found = packaged_retriever(None).skills(kept_tokens(SKILL_TOKENS, rows))
    np.testing.assert_array_equal(found, packaged_retriever(None).skills(SKILL_TOKENS)[rows])


def test_the_nearest_skill_to_a_request_serves_it(retriever: Retriever, vectors: np.ndarray) -> None:
    [(cosines, share, *_)] = LearnedLeg(vectors, lambda: retriever).cosines([AIRLESS])
    assert "tyre" in SKILLS[int(cosines.argmax())].doc_id
    assert share == 1


def test_what_a_body_says_counts(retriever: Retriever) -> None:
    plain, told = (
        retriever.skills(skill_tokens_of([Skill("a/b", "helper", "Helps at home.", body)]))[0]
        for body in ("See the list.", "Patch the inner tube of the bicycle tyre, and pump in air. " * 5)
    )
    asked = retriever.requests([AIRLESS])[0][0]
    assert told @ asked > plain @ asked + 0.02


def test_of_a_long_request_its_share_that_is_read_counts(
    minilm: OnnxEncoder, retriever: Retriever, vectors: np.ndarray
) -> None:
    long = " ".join(["the bicycle lost its air"] * 60)
    count = len(base_tokenizer().encode(long, add_special_tokens=False).ids)
    assert retriever.requests([long])[1][0] == pytest.approx(QUERY / count)
    leg = LearnedLeg(vectors, lambda: retriever)
    router = Router.from_documents(SKILLS, minilm, learned=leg, settings=RouterSettings(learned=2.0))
    whole, part = (router.parts(text)["learned"] for text in (AIRLESS, long))
    assert whole.std() == pytest.approx(2, abs=0.01)
    assert part.std() == pytest.approx(2 * QUERY / count, abs=0.01)


@pytest.mark.parametrize(
    ("request_", "share"), [("", 0), ("\u4fee\u7406\u81ea\u8f66", 0), (AIRLESS + " x" * 2000, 0.03)]
)
def test_what_is_not_read_of_a_request_does_not_count(
    retriever: Retriever, request_: str, share: float
) -> None:
    assert retriever.requests([request_])[1][0] == pytest.approx(share, abs=0.02)


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
