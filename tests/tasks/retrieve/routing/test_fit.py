from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.fit import FEATURES, FitModel, Leading, evidence_of, packaged_fit
from tasks.retrieve.routing.router import Router
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


def test_a_request_that_a_skill_serves_fits_better_than_a_foreign_one(router: Router) -> None:
    served = router.rank("My bicycle has a flat tyre.", 1)[0]
    foreign = router.rank("Prepare the quarterly statement of value added tax", 1)[0]
    assert served.fit is not None
    assert foreign.fit is not None
    assert foreign.fit < packaged_fit().least < served.fit


def test_a_skill_that_is_called_by_its_name_fits(router: Router) -> None:
    assert router.rank("tyre-repair", 1)[0].fit == 1.0


@pytest.mark.parametrize("fold", [True, False])
def test_how_many_results_are_asked_for_does_not_change_a_fit(minilm: OnnxEncoder, fold: bool) -> None:
    # Longer texts: among many skills those that are ranked low may hold more of the request's words.
    many = [
        skill._replace(
            doc_id=f"{skill.doc_id}-{n}", name=f"{skill.name} {n}", body=f"{skill.body} blade {n}" * n
        )
        for n in range(12)
        for skill in SKILLS
    ]
    router = Router.from_documents(many, minilm, fit=packaged_fit())
    for query in ("sharpen a blade", "a flat tyre", "blade 7 for the bread"):
        few, whole = router.rank(query, 1, fold=fold), router.rank(query, len(many), fold=fold)
        assert len(whole) > 40
        assert (few[0].fit, few[0].evidence) == (whole[0].fit, whole[0].evidence)


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
