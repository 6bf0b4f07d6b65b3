from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from storage.errors import WrongInput
from tasks.evaluate.routing.data import skill_of
from tasks.retrieve.routing.skill import Skill
from tasks.train.material import Encoders, Material, gather, training_rows
from tasks.train.queries import PairedQueries, TrainingOptions, asked_of
from tests.support.models.training_material import pairs_of, tools
from tests.support.models.word_models import WordEncoder, WordTokenizer

OPTIONS = TrainingOptions(drop_false=False)  # of skills that are much alike
SKILLS = [Skill(*skill_of(record["doc_id"], record["content"])) for record in tools(occasions=2)]


class _Both(WordEncoder, WordTokenizer):
    def __init__(self) -> None:
        self.card: dict[str, Any] = {}
        WordEncoder.__init__(self)
        WordTokenizer.__init__(self)


@pytest.fixture(scope="module")
def asked() -> PairedQueries:
    return asked_of(pairs_of(SKILLS), SKILLS)


@contextmanager
def silent(_name: str) -> Iterator[Callable[[int, int], None]]:
    yield lambda _done, _total: None


def gathered(asked: PairedQueries, pairs: int = 10_000) -> Material:
    encoder = _Both()
    both = Encoders(encoder, encoder)
    return gather(SKILLS, {}, both, OPTIONS, silent, pairs=pairs, seed=0, asked=asked)


def words(queries: Sequence[Any]) -> set[str]:
    return {query.text for query in queries}


def test_who_is_validated_on_is_never_trained_with(asked: PairedQueries) -> None:
    material = gathered(asked)
    assert words(material.queries) <= words(asked.train)
    assert words(material.asked) <= words(asked.validation)
    assert len(material.asked) == len({query.row for query in material.asked}) > 10
    held = set(material.held_out.rows.tolist())
    assert {query.row for query in material.asked} <= held
    used = {query.row for query in material.queries}
    used |= {negative.row for negatives in material.mined.negatives for negative in negatives}
    assert not held & used


def test_no_text_that_is_read_holds_what_is_asked_of_its_skill(asked: PairedQueries) -> None:
    material = gathered(asked)
    rows = training_rows(material, lambda skill: skill.text, OPTIONS, np.random.default_rng(0))
    texts = {text for row in rows for text in row[1:]}
    assert len(texts) <= len(SKILLS)  # one a skill, however often and as what it is read
    assert not any("amber" in text or "cedar" in text for text in texts)
    for side in (material.train, material.held_out):
        assert len(side.skills) == len(set(side.rows.tolist())) == len(side.rows)


def test_requests_that_are_not_used_are_counted(asked: PairedQueries) -> None:
    material = gathered(asked._replace(shared=3), pairs=5)
    left_out = material.counts()["left_out"]
    assert left_out["of_two_skills"] == 3
    assert left_out["beyond_pairs"] + 5 + left_out["of_skills_that_say_no_more"] == len(asked.train)


def test_requests_without_a_skill_that_says_anything_else_are_told(asked: PairedQueries) -> None:
    mute = [replace(query, passages=(SKILLS[query.row].description,)) for query in asked.train]
    with pytest.raises(WrongInput, match="no request of the pairs is left to train with"):
        gathered(asked._replace(train=mute))
