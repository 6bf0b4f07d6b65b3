"""Methods of suggesting skills: their scores on paper, and what holds of all methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.skills.actions import Body, Find
from tasks.induce.skills.windows import DecisionPoint, Target, decision_points
from tasks.induce.skills.wording import summed_up
from tasks.induce.trajectories.outline import page_seen
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.methods import (
    METHODS,
    WEIGHTS,
    Offer,
    Offered,
    SgdrSetting,
    SkillQuestion,
    default,
    popular,
    sgdr,
)
from tests.support.induce.runs import BEDS, FORM, HOME, add_bed, call, mooring, press
from tests.support.models.word_models import WordEncoder

ENCODE = WordEncoder().encode
BOATS = ["Petrel", "Auk", "Tern", "Gannet"]
RUNS = [
    add_bed("g1", "a"), add_bed("g2", "b", "Palm house", "peat"), mooring("h1", "c"),
    mooring("h2", "d", "Auk", "C3", 55), add_bed("g3", "a", "Herb wall", "sand"), mooring("h3", "e", "Tern"),
]  # fmt: skip
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


def library(
    vectors: Mapping[str, tuple[float, ...]], task_ids: Sequence[str] = (), uses: Sequence[DecisionPoint] = ()
) -> Offered:
    """Return skills of uses, or one of each name, described by it alone, with vectors written by hand."""

    def encode(texts: Sequence[str]) -> Vectors:
        held = [TEXTS.get(text) or vectors[text.partition(",")[0].lower()] for text in texts]
        return np.array(held, dtype=np.float32)

    offered = Offered(encode)
    offered.learn(uses)
    for number, name in enumerate([] if uses else vectors):
        task_id = task_ids[number] if task_ids else f"task {number}"
        body = (call(name), call("end"))
        offered.learn([DecisionPoint("h", task_id, "d", 0, "", START, None, (body,), TASK)])
    return offered


def vector(text: str) -> Vectors:
    return np.array(TEXTS[text], dtype=np.float32)


def asked(
    task_id: str = "", state: str = STATE, before: Target | None = None, step: int = 0
) -> SkillQuestion:
    return SkillQuestion(vector(TASK), vector(state), vector(START), before, None, task_id, step)


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


def test_the_skills_that_most_tasks_share_come_first() -> None:
    offered = library(SKILLS, ["a"] * 8)
    again = [DecisionPoint("h", task_id, "d", 0, "", START, None, (offered.skills[n],)) for n, task_id in
             [(5, "b"), (5, "c"), (2, "b"), (7, "a"), (7, "a")]]  # fmt: skip
    offered.learn(again)
    assert skills(popular(offered, asked(), 4)) == [5, 2, 0, 1]  # two runs of one task are one task
    assert skills(popular(offered, asked("a"), 4)) == [5, 2]
    assert skills(popular(offered, asked("b"), 2)) == [5, 0]


def skills(offers: Sequence[Offer]) -> list[int]:
    return [offer.skill for offer in offers]


def test_chance_draws_the_same_at_the_same_step() -> None:
    offered = library(SKILLS)
    draw = METHODS["random"]
    steps = [asked("a task", step=step) for step in range(6)]
    found = [skills(draw(offered, step, 5)) for step in steps]
    assert found == [skills(draw(offered, step, 5)) for step in steps]
    assert len(set(map(tuple, found))) > 1
    assert all(len(set(drawn)) == 5 for drawn in found)


HOLD: Target = ("hold_berth", None, None)
FIND: Target = ("find_berth", None, None)


def use(
    name: str, task_id: str, state: str = START, before: Target | None = None, task: str = START
) -> DecisionPoint:
    return DecisionPoint("h", task_id, "d", 0, "", state, before, ((call(name), call("end")),), task)


def test_the_default_sums_over_the_uses_of_a_skill() -> None:
    uses = [
        use("one", "a"),
        use("one", "b", STATE, HOLD, TASK),
        use("one", "c", STATE, FIND),
        use("two", "d", START, FIND),
    ]
    offered = library(SKILLS, uses=uses)
    (first, second) = default(offered, asked(before=FIND), 5, (2.0, 1.0, 0.5, 4.0))
    # Nothing is alike at the first use, state and task at the second, state and action at the third.
    summed = np.exp(-3.5) + np.exp(-0.5) + np.exp(-1.0)
    assert first.parts == pytest.approx({"use": np.log(summed), "said": -4.0, "length": -0.4})
    assert first.score == pytest.approx(sum(first.parts.values()))
    assert second.parts == pytest.approx({"use": -3.0, "said": -4.0, "length": -0.4})
    assert [part.skill for part in (first, second)] == [0, 1]


@pytest.mark.parametrize(
    ("before", "expected"),
    [(None, [0, 1, 2]), (FIND, [1, 0, 2]), (HOLD, [2, 0, 1]), (("x", None, None), [0, 1, 2])],
)
def test_a_use_after_the_same_action_comes_before_one_after_another(
    before: Target | None, expected: list[int]
) -> None:
    alike = dict.fromkeys(("a", "b", "c"), (0.6, 0.0, 0.0, 0.8))
    uses = [use("a", "1"), use("b", "1", before=FIND), use("c", "1", before=HOLD)]
    offered = library(alike, uses=uses)
    assert skills(default(offered, asked(before=before), 3)) == expected


def test_uses_of_the_own_task_do_not_count() -> None:
    uses = [use("one", "own", STATE), use("one", "other"), use("two", "own", STATE)]
    offered = library(SKILLS, uses=uses)
    state, task = WEIGHTS[:2]
    (found,) = default(offered, asked("own"), 5)
    assert found.parts["use"] == pytest.approx(-state - task)  # nothing was done before either
    others = default(offered, asked("new"), 5)
    summed = np.log(np.exp(-task) + np.exp(-state - task))
    assert [offer.parts["use"] for offer in others] == pytest.approx([summed, -task])


def test_skills_whose_labels_the_task_says_come_first() -> None:
    beds, ferns = ((press("link", label), press("button", "save")) for label in ("All beds", "Ferns"))
    point = DecisionPoint("h", "a", "d", 0, "", START, None, (ferns, beds), TASK)
    offered = library({}, uses=[point])
    assert offered.said("Show me all beds, save nothing.").tolist() == [0.5, 1.0]
    assert offered.said("").tolist() == [0.0, 0.0]
    for text, first in (("Water the FERNS", ferns), ("Which beds are there at all?", beds)):
        found = default(offered, replace(asked(), text=text), 5)
        assert offered.skills[found[0].skill] == first
        assert sorted(found[0].parts) == ["length", "said", "use"]


def test_a_skill_whose_elements_the_page_does_not_show_is_not_offered() -> None:
    adding = (press("button", "add bed"), press("button", "save", Find(0)))
    helping = (press("button", "help"), call("wait"))
    offered = Offered(ENCODE)
    offered.learn([DecisionPoint("h", "a", "d", 0, "", "seen", None, (adding, helping))])

    def shown(page: str | None) -> set[Body]:
        task, state = ENCODE(["a task", "seen"])
        question = SkillQuestion(task, state, state, None, page_seen(page) if page else None)
        return {offered.skills[offer.skill] for offer in default(offered, question, 1 if page else 2)}

    assert shown(HOME) == {helping}
    assert shown(BEDS) == {adding}  # what it finds later need not be there yet
    assert shown(FORM) == set()
    assert shown(None) == {adding, helping}


def test_what_was_done_in_like_states_is_offered() -> None:
    offered = Offered(ENCODE)
    for run in RUNS:
        offered.learn(decision_points(run))
    for run in (add_bed("g4", "f", "Moss wall", "clay"), mooring("h4", "g", "Gannet")):
        for met in decision_points(run):
            task, state = ENCODE([run.task, met.state])
            found = default(offered, SkillQuestion(task, state, state, met.before, text=run.task), 5)
            assert not met.bodies or {offered.skills[one.skill] for one in found} & set(met.bodies)


@given(st.permutations(range(6)), st.sampled_from(list(METHODS)[:-1]))
def test_the_order_of_trajectories_does_not_change_how_skills_score(order: list[int], name: str) -> None:
    def scores(order: Sequence[int]) -> list[float]:
        offered = Offered(ENCODE)
        for n in order:
            offered.learn(decision_points(RUNS[n]))
        task, state, start = ENCODE([RUNS[0].task, summed_up(BEDS), summed_up(HOME)])
        found = METHODS[name](offered, SkillQuestion(task, state, start), 40)
        return [round(offer.score, 5) for offer in found]

    assert scores(order) == scores(range(6))


@pytest.mark.parametrize("name", METHODS)
def test_no_method_offers_anything_before_anything_is_learned(name: str) -> None:
    assert METHODS[name](library({}), asked("a"), 5) == []


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.sampled_from("abcd"), st.integers(1, 6))
def test_skills_of_the_own_task_alone_are_never_offered(tasks: list[str], own: str, k: int) -> None:
    offered = Offered(ENCODE)
    for number, task_id in enumerate(tasks):
        run = mooring(f"h{number}", task_id, BOATS[number], fee=30 + 10 * (number % 2))
        # Each task has a skill that no other has.
        known = [*decision_points(run), moment_of(task_id)]
        offered.learn(known)
    texts = [mooring("h9", own, "Skua").task, "after find berth", "after a message of the user"]
    task, state, start = ENCODE(texts)
    step = SkillQuestion(task, state, start, task_id=own)
    for name, method in METHODS.items():
        found = method(offered, step, k)
        assert len(set(found)) == len(found) <= k, name
        assert all(offered.support(own)[offer.skill] > 0 for offer in found), name
        assert bool(found) is any(task != own for task in tasks), name


def moment_of(task_id: str) -> DecisionPoint:
    body = (call(f"only_{task_id}"), call("end"))
    return DecisionPoint("h", task_id, "harbour", 9, "", "after hold berth", None, (body,))
