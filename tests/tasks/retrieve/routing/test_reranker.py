from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.models.adapted_encoder import FIRST, LAST, WIDTH
from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.routing.fit import packaged_fit
from tasks.retrieve.routing.reranker import (
    REACHES,
    PairScorer,
    Reach,
    SkillReader,
    best_window,
    packaged_pair_scorer,
    pair_of,
)
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill_tokens import Ids, joined_tokens, kept_tokens, skill_tokens_of
from tests.support.models.routing_material import SKILLS

_IDS = st.integers(1000, 1020)
_RARITY = np.linspace(0.1, 9, 30_522, dtype=np.float32)
TOKENS = skill_tokens_of(SKILLS)
ROWS = range(len(SKILLS))
REQUEST = "My bicycle has a flat tyre."


def ids(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint16)


@pytest.fixture(scope="module")
def model() -> PairScorer:
    return packaged_pair_scorer(None)


@given(asked=st.lists(_IDS, max_size=6), body=st.lists(_IDS, max_size=60), width=st.integers(-2, 70))
def test_no_other_part_of_a_body_says_more_of_the_request(
    asked: list[int], body: list[int], width: int
) -> None:
    def worth(part: list[int]) -> float:
        return sum(float(_RARITY[i]) / body.count(i) ** 0.5 for i in part if i in asked)

    found = best_window(asked, ids(body), width, _RARITY).tolist()
    parts = [body[at : at + max(width, 0)] for at in range(max(len(body) - max(width, 0), 0) + 1)]
    assert found in parts
    assert worth(found) == pytest.approx(max(map(worth, parts)), rel=1e-4)


@given(
    asked=st.lists(_IDS, max_size=6), head=st.lists(_IDS, max_size=96), body=st.lists(_IDS, max_size=120),
    tokens=st.sampled_from([reach.tokens for reach in REACHES.values()]),
)  # fmt: skip
def test_a_pair_is_the_request_and_as_much_of_a_skill_as_may_be_read(
    asked: list[int], head: list[int], body: list[int], tokens: int
) -> None:
    pair, second = pair_of(asked, (ids(head), ids(body)), tokens, _RARITY)
    assert pair[:second] == [FIRST, *asked, LAST]
    assert pair[-1] == LAST
    assert len(pair) - second - 1 == min(tokens, len(head) + 1 + len(body))


@given(keep=st.lists(st.booleans(), min_size=len(SKILLS), max_size=len(SKILLS)), at=st.integers(0, 7))
def test_tokens_of_skills_can_be_parted_and_joined(keep: list[bool], at: int) -> None:
    stays = [skill for skill, kept in zip(SKILLS, keep, strict=True) if kept]
    for made, wanted in (
        (kept_tokens(TOKENS, np.flatnonzero(keep)), skill_tokens_of(stays)),
        (joined_tokens([skill_tokens_of(SKILLS[:at]), skill_tokens_of(SKILLS[at:])]), TOKENS),
    ):
        assert made.whole()
        for one, other in zip(
            (made.ids, made.starts, made.bodies), (wanted.ids, wanted.starts, wanted.bodies), strict=True
        ):
            assert one.tolist() == other.tolist()


@settings(max_examples=4)
@given(rows=st.lists(st.sampled_from(ROWS), min_size=1, max_size=5, unique=True))
def test_what_a_skill_is_told_does_not_depend_on_what_is_read_beside_it(rows: list[int]) -> None:
    alone, together = PairScorer(plain(), threads=1), PairScorer(plain(), threads=2)
    skills = [TOKENS.of(row) for row in rows]
    each = [float(alone.scores(REQUEST, [skill], 48)[0]) for skill in skills]
    assert together.scores(REQUEST, skills, 48).tolist() == pytest.approx(each, abs=0.02)


def plain() -> dict[str, Any]:
    """Return weights without adapters, of a head that says something."""
    head = np.random.default_rng(0).normal(size=2 * WIDTH).astype(np.float32)
    return {"head.w": head, "head.b": np.float32(0), "rarity": _RARITY}


def test_a_skill_that_serves_is_told_from_others(model: PairScorer) -> None:
    told = model.scores(REQUEST, [TOKENS.of(row) for row in ROWS], 96)
    served = np.array(["tyre" in skill.doc_id for skill in SKILLS])
    assert told[served].min() > told[~served].max()


def test_a_skill_is_read_once_a_request_also_side_by_side_with_others(
    minilm: OnnxEncoder, model: PairScorer
) -> None:
    read: list[int] = []

    def tokens_of(row: int) -> tuple[Ids, Ids]:
        read.append(row)
        return TOKENS.of(row)

    reader = SkillReader(lambda: model, tokens_of, Reach(3, 48, 0.8))
    router = Router.from_documents(SKILLS, minilm, reader=reader, fit=packaged_fit("fast"))
    asked = [REQUEST, "sharpen a knife", "feed the bees", "knead a dough"]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: router.rank(query, 3), asked))
    assert len(read) == 3 * len(asked)
    assert found == [router.rank(query, 3) for query in asked]


def reading(encoder: OnnxEncoder, model: PairScorer, reach: Reach) -> Router:
    reader = SkillReader(lambda: model, TOKENS.of, reach)
    return Router.from_documents(SKILLS, encoder, reader=reader)


@pytest.mark.parametrize("skills", [1, 2, 5, 20])
@pytest.mark.parametrize("fold", [True, False])
def test_those_that_are_read_stay_before_all_others(
    minilm: OnnxEncoder, model: PairScorer, skills: int, fold: bool
) -> None:
    legs = Router.from_documents(SKILLS, minilm).rank(REQUEST, 9, fold=fold)
    router = reading(minilm, model, Reach(skills, 48, 3.0))
    found = router.rank(REQUEST, 9, fold=fold)
    assert {one.doc_id for one in found[:skills]} == {one.doc_id for one in legs[:skills]}
    assert [one.doc_id for one in found[skills:]] == [one.doc_id for one in legs[skills:]]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        assert one.score == pytest.approx(sum(one.parts.values()), abs=1e-4)
    assert router.rank(REQUEST, 2, fold=fold) == found[:2]


@pytest.mark.parametrize("fold", [True, False])
def test_no_score_and_no_fit_depends_on_how_many_are_asked_for(
    minilm: OnnxEncoder, model: PairScorer, fold: bool
) -> None:
    many = [
        s._replace(doc_id=f"{s.doc_id}-{n}", body=s.body + f" patch {n}" * n)
        for n in range(12)
        for s in SKILLS
    ]
    tokens = skill_tokens_of(many)
    reader = SkillReader(lambda: model, tokens.of, REACHES["fast"])
    router = Router.from_documents(many, minilm, fit=packaged_fit("fast"), reader=reader)
    told = router.rank(REQUEST, len(many), fold=fold)
    for k in (1, 5, 40):
        found = router.rank(REQUEST, k, fold=fold)
        for one, same in zip(found, told, strict=False):
            assert (one.doc_id, one.score) == (same.doc_id, same.score)
            assert (one.fit, one.evidence) == (pytest.approx(same.fit), pytest.approx(same.evidence))
        assert found


def test_a_text_made_to_be_read_is_lifted_no_further_than_twelve_times_the_weight(model: PairScorer) -> None:
    reader = SkillReader(lambda: model, TOKENS.of, Reach(7, 96, 0.5))
    parts = reader.reach.part(reader.scores(REQUEST, list(ROWS)))
    assert parts.min() >= -2
    assert parts.max() <= 4
    assert np.ptp(parts) > 1


def test_a_model_that_could_not_be_loaded_is_loaded_again(model: PairScorer) -> None:
    tries = iter([OSError("too many open files"), model])

    def load() -> PairScorer:
        found = next(tries)
        if isinstance(found, OSError):
            raise found
        return found

    reader = SkillReader(load, TOKENS.of, REACHES["fast"])
    with pytest.raises(OSError, match="too many"):
        reader.scores(REQUEST, [0])
    assert len(reader.scores(REQUEST, [0])) == 1


def test_reading_decides_among_what_was_found(minilm: OnnxEncoder, model: PairScorer) -> None:
    query = "the hive: my bread needs an oven, a starter and dough kneaded by hand"
    found = reading(minilm, model, Reach(5, 96, 50.0)).rank(query, 5)
    parts = [one.parts["reranker"] for one in found]
    assert parts == sorted(parts, reverse=True)
    assert found[0].doc_id == "home/sourdough"
