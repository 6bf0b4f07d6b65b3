"""Methods of suggesting skills: SGDR's equations on paper, and what holds of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.induce.windows.recurrence import Moment, Situation, moments
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.choose import Offer
from tasks.retrieve.suggest.methods import METHODS, SgdrSetting, SkillQuestion, popular, sgdr
from tasks.retrieve.suggest.offered import Offered
from tests.support.induce.runs import call, mooring
from tests.support.models.word_models import WordEncoder

NOTHING = Situation("", frozenset(), (), None)
TASK, STATE, START = "the task", "the state", "the start"
# Unit vectors of eight descriptions; the first two numbers are the cosines to the task and to the state.
SKILLS = {
    "one": (0.96, 0.0, 0.28, 0.0),
    "two": (0.7, 0.5, 0.1, 0.5),
    "three": (0.8, 0.6, 0.0, 0.0),
    "four": (0.5, 0.1, 0.5, 0.7),
    "five": (0.1, 0.7, 0.5, 0.5),
    "six": (0.28, 0.96, 0.0, 0.0),
    "seven": (-0.1, 0.3, 0.9, 0.3),
    "eight": (0.0, 0.28, 0.0, 0.96),
}
TEXTS = {TASK: (1, 0, 0, 0), STATE: (0, 1, 0, 0), START: (0, 0, 0, 1)}


def library(vectors: Mapping[str, tuple[float, ...]], task_ids: Sequence[str] = ()) -> Offered:
    """Return a skill of each name, described by it alone, with a vector written by hand."""

    def encode(texts: Sequence[str]) -> Vectors:
        held = [TEXTS.get(text) or vectors[text.partition(",")[0].lower()] for text in texts]
        return np.array(held, dtype=np.float32)

    offered = Offered(encode)
    for number, name in enumerate(vectors):
        task_id = task_ids[number] if task_ids else f"task {number}"
        body = (call(name), call("end"))
        offered.learn([Moment("h", task_id, "d", 0, "", NOTHING, (), (body,))], encode([TASK])[0])
    return offered


def asked(task_id: str = "", state: str = STATE) -> SkillQuestion:
    return SkillQuestion(NOTHING, np.array(TEXTS[TASK], dtype=np.float32), state, START, task_id)


def order(setting: SgdrSetting, k: int = 8, task_id: str = "") -> list[str]:
    names = list(SKILLS)
    return [names[offer.skill] for offer in sgdr(setting)(library(SKILLS), asked(task_id), k)]


@pytest.mark.parametrize(
    ("alpha", "relevance_weight", "expected"),
    [
        # By equation 1 alone: the cosines to the state, half of both, those to the task, from high to low.
        (0.0, None, "six five three two seven eight four one"),
        (0.5, None, "three six two one five four eight seven"),
        (1.0, None, "one three two four six five eight seven"),
        # With 0.7: after six, five and three, seven (0.21 - 0.3 * 0.8) falls behind eight (0.196 - 0.2028).
        (0.0, 0.7, "six five three two eight seven four one"),
        (0.5, 0.7, "three six two one five four eight seven"),
        (1.0, 0.7, "one three two four six five eight seven"),
        # With 0.5 and alpha 0.5: three has 0.35. Then seven has 0.05 - 0.5 * 0.1 = 0, eight 0.07 - 0.084 and
        # six 0.31 - 0.4; then six -0.09, eight 0.07 - 0.186 and two 0.3 - 0.43; then eight, two, one,
        # five 0.2 - 0.4, four 0.15 - 0.4.
        (0.0, 0.5, "six seven eight five three two four one"),
        (0.5, 0.5, "three seven six eight two one five four"),
        (1.0, 0.5, "one three four two six five eight seven"),
    ],
)
def test_sgdr_ranks_as_its_equations_do_on_paper(
    alpha: float, relevance_weight: float | None, expected: str
) -> None:
    setting = SgdrSetting(alpha, relevance_weight)

    assert order(setting) == expected.split()
    assert order(setting, k=3) == expected.split()[:3]


def test_sgdrs_numbers_are_those_of_the_paper() -> None:
    assert SgdrSetting() == SgdrSetting(alpha=0.5, relevance_weight=0.7, static=False)
    assert [SgdrSetting().candidates(k) for k in (1, 5, 6, 7, 10)] == [20, 20, 20, 21, 30]


def test_only_the_candidates_are_reranked() -> None:
    # Twenty skills alike, and one that is less relevant but like none of them, which MMR would take second.
    alike = {f"alike{n:02}": (0.8, 0.6, 0.0, 0.0) for n in range(20)}
    offered = library({**alike, "other": (0.4, 0.2, 0.4, 0.8)})
    names = [body[0].name for body in offered.skills]

    def found(k: int) -> list[str]:
        return [names[offer.skill] for offer in sgdr(SgdrSetting(relevance_weight=0.5))(offered, asked(), k)]

    assert "other" not in found(6)
    assert found(7)[1] == "other"


def test_the_static_method_asks_with_the_state_at_the_start() -> None:
    static = sgdr(SgdrSetting(alpha=0.0, relevance_weight=None, static=True))
    offered = library(SKILLS)

    found = [list(SKILLS)[offer.skill] for offer in static(offered, asked(), 3)]

    assert found == ["eight", "four", "two"]  # the last of the four numbers
    assert static(offered, asked(state=TASK), 3) == static(offered, asked(), 3)


def test_skills_of_the_own_task_alone_are_no_candidates() -> None:
    assert order(SgdrSetting(1.0, None), task_id="task 0")[:2] == ["three", "two"]
    assert order(SgdrSetting(0.0, None), task_id="task 5")[:2] == ["five", "three"]


def test_the_skills_that_most_tasks_share_come_first() -> None:
    offered = library(SKILLS, ["a"] * 8)
    again = [Moment("h", task_id, "d", 0, "", NOTHING, (), (offered.skills[n],)) for n, task_id in
             [(5, "b"), (5, "c"), (2, "b"), (7, "a"), (7, "a")]]  # fmt: skip
    offered.learn(again, asked().task)

    assert skills(popular(offered, asked(), 4)) == [5, 2, 0, 1]  # two runs of one task are one task
    assert skills(popular(offered, asked("a"), 4)) == [5, 2]
    assert skills(popular(offered, asked("b"), 2)) == [5, 0]


def skills(offers: Sequence[Offer]) -> list[int]:
    return [offer.skill for offer in offers]


def test_chance_draws_the_same_at_the_same_step() -> None:
    offered = library(SKILLS)
    draw = METHODS["random"]
    steps = [SkillQuestion(NOTHING, asked().task, STATE, START, "a task", step) for step in range(6)]

    found = [skills(draw(offered, step, 5)) for step in steps]

    assert found == [skills(draw(offered, step, 5)) for step in steps]
    assert len(set(map(tuple, found))) > 1
    assert all(len(set(drawn)) == 5 for drawn in found)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_offers_anything_before_anything_is_learned(name: str) -> None:
    assert METHODS[name](library({}), asked("a"), 5) == []


ENCODE = WordEncoder().encode
BOATS = ["Petrel", "Auk", "Tern", "Gannet"]


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.sampled_from("abcd"), st.integers(1, 6))
def test_skills_of_the_own_task_alone_are_never_offered(tasks: list[str], own: str, k: int) -> None:
    offered = Offered(ENCODE)
    for number, task_id in enumerate(tasks):
        run = mooring(f"h{number}", task_id, BOATS[number], fee=30 + 10 * (number % 2))
        # Each task has a skill that no other has.
        known = [*moments(run), moment_of(task_id)]
        offered.learn(known, ENCODE([run.task])[0])
    met = moments(mooring("h9", own, "Skua"))[0].situation
    step = SkillQuestion(met, ENCODE([met.task])[0], "after find berth", "after a message of the user", own)

    for name, method in METHODS.items():
        found = method(offered, step, k)
        assert len(set(found)) == len(found) <= k, name
        assert all(offered.support(own)[offer.skill] > 0 for offer in found), name
        assert bool(found) is any(task != own for task in tasks), name


def moment_of(task_id: str) -> Moment:
    body = (call(f"only_{task_id}"), call("end"))
    return Moment("h", task_id, "harbour", 9, "", NOTHING, (), (body,))
