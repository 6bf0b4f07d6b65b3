from __future__ import annotations

import pytest

from tasks.evaluate.routing.baselines import ABLATIONS, Ablations
from tasks.retrieve.routing.router import Router
from tests.support.models.routing_material import SKILLS
from tests.support.models.word_models import WordEncoder


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
