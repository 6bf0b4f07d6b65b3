from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.baselines import (
    ABLATIONS,
    BASELINES,
    Ablations,
    Baselines,
    Bm25,
    as_served,
    sentences,
    standardised,
)
from tasks.retrieve.routing.router import Router
from tests.support.models.routing_material import SKILLS
from tests.support.models.word_models import WordEncoder, WordTokenizer


class Encoder(WordEncoder, WordTokenizer):
    """Both halves of an index's encoder."""

    def __init__(self) -> None:
        self.card: dict[str, Any] = {}
        WordEncoder.__init__(self)
        WordTokenizer.__init__(self)


@pytest.fixture
def baselines() -> Baselines:
    frame = pl.DataFrame([list(s) for s in SKILLS], schema=list(SKILLS[0]._fields), orient="row")
    return Baselines(frame, Encoder(), WordEncoder())


def test_bm25_is_that_of_the_book() -> None:
    texts = ["bread and honey", "honey honey wax", "wax"]
    index = Bm25(texts, k1=1.2, b=0.5)
    rarity = np.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 7 / 3
    by_hand = [n / (n + 1.2 * (0.5 + 0.5 * length / mean)) for n, length in ((1, 3), (2, 3), (0, 1))]
    assert index.scores("Honey? Honey!") == pytest.approx(rarity * np.array(by_hand), rel=1e-5)
    assert index.scores("submarine").tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("method", BASELINES)
def test_every_baseline_finds_what_names_its_skill_and_its_doings(method: str, baselines: Baselines) -> None:
    assert baselines.rank(method, "Prunes roses in spring with a sharp knife", 3)[0] == "home/roses"


def test_descriptions_know_nothing_of_the_body_and_full_texts_do(baselines: Baselines) -> None:
    assert baselines.rank("bm25-full", "wicks", 1) == ["home/candles"]
    assert baselines.rank("dense-full", "wicks", 1) == ["home/candles"]
    assert baselines.rank("bm25-description", "wicks", 1) == ["copy/tyre"]
    # Equal scores stand in the order of ids.
    assert baselines.rank("bm25-description", "submarine", 9) == sorted(s.doc_id for s in SKILLS)


@pytest.mark.parametrize("method", BASELINES)
def test_the_score_of_the_first_skill_is_higher_the_more_of_it_a_task_names(
    method: str, baselines: Baselines
) -> None:
    much = baselines.answer(method, "Prunes roses in spring", 1)
    little = baselines.answer(method, "Prunes submarines of the fleet", 1)
    assert list(much.doc_ids) == ["home/roses"]
    assert much.score is not None
    assert little.score is not None
    assert much.score >= little.score if method.startswith(("rrf", "hybrid")) else much.score > little.score


def test_the_score_of_the_fusion_adds_the_reciprocal_ranks_of_its_legs(baselines: Baselines) -> None:
    for method, legs in (("rrf", 3), ("rrf-two-legs", 2)):
        assert baselines.answer(method, "Prunes roses in spring", 1).score == pytest.approx(legs / 61)


def test_a_skill_that_fits_one_sentence_of_many_is_found_by_its_sentence(baselines: Baselines) -> None:
    task = "Melt it in a pan, then wait. Sharpens kitchen knives on a stone. Clear the table in the end."
    assert baselines.rank("sentences", task, 1) == ["home/knife"]
    # Those of three words or more count, once.
    said = "Mend the tyre. Now!\n- Pump it up\nMend the tyre."
    assert sentences(said) == ["Mend the tyre.", "- Pump it up"]
    assert sentences("Bread?") == ["Bread?"]


def test_scores_are_told_in_standard_deviations() -> None:
    assert standardised(np.array([1.0, 3.0])).tolist() == [-1.0, 1.0]
    assert standardised(np.array([2.0, 2.0])).tolist() == [0.0, 0.0]


def test_the_default_is_timed_as_it_answers_and_measured_deeper_with_copies_folded() -> None:
    encoder = Remembering(WordEncoder())
    skills = [*SKILLS, SKILLS[4]._replace(doc_id="again/knife")]
    router = Router.from_documents(list(skills), encoder)
    task = "Hold the edge of the knife at fifteen degrees"
    (answer,) = as_served(router, encoder)(task, 1000)
    assert answer.doc_ids[0] == "again/knife"
    assert "home/knife" in {other for found in router.rank(task, 10) for other in found.folded}
    assert "home/knife" not in answer.doc_ids
    assert "home/roses" in answer.doc_ids
    assert answer.milliseconds > 0
    assert answer.score == router.rank(task, 1)[0].score


@pytest.fixture(scope="module")
def ablations() -> Ablations:
    return Ablations(SKILLS, WordEncoder(), WordEncoder())


@pytest.mark.parametrize("task", ["Prunes roses in spring with a sharp knife", "wicks"])
def test_the_default_is_what_search_answers_with(ablations: Ablations, task: str) -> None:
    served = Router.from_documents(SKILLS, WordEncoder())
    assert ablations.router("default").rank(task, 9) == served.rank(task, 9)


@pytest.mark.parametrize("name", sorted(set(ABLATIONS) - {"default-lexical-headings"}))
def test_all_but_headings_find_what_names_its_skill_and_its_doings(ablations: Ablations, name: str) -> None:
    assert (
        ablations.router(name).rank("Prunes roses in spring with a sharp knife", 1)[0].doc_id == "home/roses"
    )


def lexical(ablations: Ablations, name: str, task: str) -> dict[str, float]:
    return {found.doc_id: found.parts["lexical"] for found in ablations.router(name).rank(task, 99)}


def test_a_word_of_the_body_alone_counts_where_bodies_do(ablations: Ablations) -> None:
    for name in ("default", "default-lexical", "default-lexical-body"):
        scores = lexical(ablations, name, "wicks")
        assert max(scores, key=scores.__getitem__) == "home/candles"
    for name in ("default-no-body", "default-lexical-name", "default-lexical-description", "default-dense"):
        assert set(lexical(ablations, name, "wicks").values()) == {0.0}


def test_a_leg_left_out_scores_nothing(ablations: Ablations) -> None:
    task = "Prunes roses in spring. Then sharpens the knife on a stone."
    parts = {name: ablations.router(name).parts(task) for name in ABLATIONS}
    assert not parts["default-lexical"]["whole"].any()
    assert not parts["default-dense"]["lexical"].any()
    assert not parts["default-no-facets"]["facets"].any()
    assert not parts["default-no-described"]["described"].any()
    assert not parts["default-lexical-body"]["described"].any()
    for name in ("default-no-again", "default-lexical-body", "default-dense"):
        assert not parts[name]["again"].any()
    assert parts["default"]["whole"].any()
    assert parts["default"]["facets"].any()
    assert parts["default"]["lexical"].any()
    assert parts["default"]["described"].any()
    assert parts["default"]["again"].any()
