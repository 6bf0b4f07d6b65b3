"""The online stream: each step is asked before its trajectory is learned from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.evaluate.stream.report import decision_means
from tasks.evaluate.stream.walk import MEASURES, Decision, Stream, has_succeeded, reachable
from tasks.induce.skills.actions import Body
from tasks.induce.skills.windows import decision_points, misfit
from tasks.induce.trajectories.cleaning import cleaned
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.retrieve.suggest.methods import METHODS, Offer, Offered, SkillQuestion
from tests.support.induce.runs import TOOL_RUNS, add_bed, kept, mooring, tool_run, web_runs
from tests.support.models.word_models import WordEncoder

PETREL, AUK = mooring("h1", "a"), mooring("h2", "b", "Auk", "C3", 55)


def all_there_is(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    support = offered.support(asked.task_id)
    return [Offer(skill, 0.0) for skill in range(len(offered.skills)) if support[skill]]


def nothing(offered: Offered, asked: SkillQuestion, k: int) -> list[Offer]:
    return []


def walked(stream: Stream, *runs: Trajectory, method: str = "") -> list[Decision]:
    methods = {"it": METHODS[method] if method else all_there_is}
    return [decision for _, decision in stream.walk(runs, methods)]


@pytest.fixture
def stream() -> Stream:
    return Stream(WordEncoder().encode)


def test_nothing_is_usable_in_the_first_trajectory(stream: Stream) -> None:
    found = walked(stream, PETREL)
    assert [(one.trajectory_id, one.task_id, one.domain, one.t) for one in found] == [
        ("h1", "a", "harbour", t) for t in (0, 1, 2, 4)
    ]
    assert {(one.usable, one.begun, one.reachable, one.walked) for one in found} == {(0, False, False, True)}


@pytest.mark.parametrize("method", ["", "default", "sgdr", "popular"])
def test_an_agent_goes_on_behind_the_longest_skill_that_is_usable(stream: Stream, method: str) -> None:
    found = walked(stream, PETREL, AUK, method=method)[4:]
    # find, hold, take: a skill does all three, one the last two, none of two actions the last; the receipt
    # stands alone behind the message. The agent decides at the first of the three and at the receipt.
    assert [one.usable for one in found] == [3, 2, 0, 0]
    assert [one.walked for one in found] == [True, False, False, True]
    assert [one.begun for one in found] == [True, True, False, False]
    assert decision_means(found)["decisions"] == 0.5
    assert decision_means(found)["usable@5"] == 0.5


def test_a_skill_that_fits_inside_one_that_was_used_saves_nothing_more(stream: Stream) -> None:
    calls = [(name, {"code": "B7"}, "ok") for name in ("untie", "turn", "leave", "greet", "moor", "tie")]
    whole = tool_run("Sail", calls, name="h1", task_id="a")
    later = tool_run("Sail", calls, name="h2", task_id="b")
    found = walked(stream, whole, later)[6:]
    # Windows have 5 actions at most: behind the first five the last step is decided for itself.
    assert [one.usable for one in found] == [5, 5, 4, 3, 2, 0]
    assert [one.walked for one in found] == [True, False, False, False, False, True]


def test_without_skills_an_agent_decides_at_each_step(stream: Stream) -> None:
    found = [decision for _, decision in stream.walk([PETREL, AUK], {"none": nothing})]
    assert decision_means(found)["decisions"] == 1
    assert decision_means(found)["usable@5"] == decision_means(found)["action@5"] == 0
    assert [one.reachable for one in found[4:]] == [True, True, False, False]


def test_skills_that_come_from_the_own_task_alone_are_neither_offered_nor_reachable(stream: Stream) -> None:
    again = mooring("h2", "a")
    for method in METHODS:
        found = walked(Stream(stream.encode), PETREL, again, method=method)[4:]
        assert not any(one.usable or one.begun or one.reachable for one in found), method


def test_single_actions_are_begun_but_never_usable(stream: Stream) -> None:
    single = Stream(stream.encode, teaches=partial(decision_points, granularity="action"))
    found = walked(single, PETREL, AUK)[4:]
    assert [one.usable for one in found] == [0] * 4
    assert [one.begun for one in found] == [True] * 4
    assert not any(one.reachable for one in found)
    assert decision_means(found)["decisions"] == 1
    alone = Stream(stream.encode, teaches=partial(decision_points, granularity="action"), least=1)
    assert [(one.usable, one.reachable) for one in walked(alone, PETREL, AUK)[4:]] == [(1, True)] * 4


def test_domains_share_no_skills(stream: Stream) -> None:
    elsewhere = Trajectory("p1", "c", "port", PETREL.task, True, PETREL.steps, PETREL.final)
    assert not any(one.usable for one in walked(stream, PETREL, elsewhere))
    assert set(stream.offered) == {"harbour", "port"}


@pytest.mark.parametrize("method", ["default", "sgdr", "popular"])
def test_what_was_taught_before_serves_as_if_it_had_been_walked(stream: Stream, method: str) -> None:
    warm = Stream(stream.encode)
    warm.teach([PETREL, add_bed("g1", "c")])
    found = walked(warm, AUK, method=method)
    assert found == walked(stream, PETREL, add_bed("g1", "c"), AUK, method=method)[-4:]
    assert found[0].usable == 3


@pytest.mark.parametrize("success", [False, None])
def test_only_successful_trajectories_have_decisions_and_are_learned_from(
    stream: Stream, success: bool | None
) -> None:
    failed = Trajectory("h0", "z", "harbour", PETREL.task, success, PETREL.steps, PETREL.final)
    found = walked(stream, failed, AUK)
    assert {one.trajectory_id for one in found} == {"h2"}
    assert not any(one.reachable for one in found)
    assert not has_succeeded(failed)


def test_verdicts_may_be_turned_before_they_are_learned_from(stream: Stream) -> None:
    turned = Stream(stream.encode, learned=lambda one: not has_succeeded(one))
    failed = Trajectory("h0", "z", "harbour", PETREL.task, False, PETREL.steps, PETREL.final)
    found = walked(turned, failed, PETREL, AUK)
    assert {one.trajectory_id for one in found} == {"h1", "h2"}  # what is decided stays as it was judged
    assert [one.usable for one in found] == [3, 2, 0, 0] * 2
    assert turned.offered["harbour"].support().tolist() == [1, 1, 1]


def test_the_first_method_is_told_at_each_step_of_each_trajectory(stream: Stream) -> None:
    told: list[tuple[str, int, int]] = []

    def note(trajectory: Trajectory, step: Step, skills: Sequence[Body]) -> None:
        told.append((trajectory.trajectory_id, step.t, len(skills)))

    failed = Trajectory("h3", "c", "harbour", PETREL.task, False, PETREL.steps, PETREL.final)
    noting = Stream(stream.encode, suggested=note)
    methods = {"all": all_there_is, "none": nothing}
    found = list(noting.walk([PETREL, AUK, failed], methods))
    assert told == [("h1", t, 0) for t in range(5)] + [
        (name, t, 3) for name in ("h2", "h3") for t in range(5)
    ]
    assert [decision for name, decision in found if name == "all"] == walked(stream, PETREL, AUK)


def test_steps_that_fall_out_are_no_decisions(stream: Stream) -> None:
    first, *rest = PETREL.steps
    thought = Step(9, first.observation, Action("think", {"thought": "hm"}))
    run = Trajectory("h1", "a", "harbour", PETREL.task, True, (thought, first, *rest), PETREL.final)
    assert [one.t for one in walked(stream, run)] == [0, 1, 2, 4]


def test_trajectories_without_steps_are_walked_past(stream: Stream) -> None:
    assert walked(stream, tool_run("nothing", []), PETREL) == walked(Stream(stream.encode), PETREL)


def test_on_pages_the_skills_of_another_task_are_usable(stream: Stream) -> None:
    found = walked(stream, add_bed("g1", "a"), add_bed("g2", "b", "Palm house", "peat"), method="default")[5:]
    assert [one.usable for one in found] == [5, 4, 3, 2, 0]
    assert [one.walked for one in found] == [True, False, False, False, False]


@settings(max_examples=40)
@given(st.lists(TOOL_RUNS | web_runs(), max_size=4), st.sampled_from([*METHODS, ""]))
def test_what_is_usable_is_reachable_has_two_actions_and_is_what_was_done(
    runs: list[Trajectory], method: str
) -> None:
    runs = [
        Trajectory(f"r{n}", f"t{n % 3}", run.domain, run.task, True, run.steps, run.final)
        for n, run in enumerate([*runs, *runs])
    ]
    offers: dict[tuple[str, int], Sequence[Body]] = {}

    def note(trajectory: Trajectory, step: Step, skills: Sequence[Body]) -> None:
        offers[trajectory.trajectory_id, step.t] = skills

    found = walked(Stream(WordEncoder().encode, suggested=note), *runs, method=method)

    place = 0
    for run in runs:
        kept, stands_at = cleaned(run)[0], 0
        for number, step in enumerate(kept):
            if step.action.speaks:
                continue
            one, place = found[place], place + 1
            fitting = [
                b for b in offers[run.trajectory_id, step.t] if misfit(b, run.task, kept, number) is None
            ]
            longest = max((len(body) for body in fitting if len(body) >= 2), default=0)
            assert (one.trajectory_id, one.t, one.usable) == (run.trajectory_id, step.t, longest)
            assert one.walked is (number >= stands_at)
            stands_at = number + longest if one.walked and longest else stands_at
            assert one.reachable or not one.usable
            assert one.begun or not one.usable
    assert place == len(found)


def decision(usable: int, *, begun: bool, reachable: bool, walked: bool) -> Decision:
    return Decision("h1", "a", "harbour", 0, usable, begun, reachable, walked)


def test_a_decision_adds_one_or_nothing_to_each_measure() -> None:
    one = decision(3, begun=True, reachable=True, walked=False)
    other = decision(0, begun=False, reachable=True, walked=True)
    assert [one.value(measure) for measure in MEASURES] == [1, 1, 0, 1]
    assert [other.value(measure) for measure in MEASURES] == [0, 0, 1, 1]
    assert list(decision_means([one, other, other, other]).values()) == [0.25, 0.25, 0.75, 1]


def test_the_mean_of_no_decisions_is_nothing() -> None:
    assert list(decision_means([]).values()) == [0, 0, 0, 0]


def test_reachable_is_what_any_skill_of_another_task_would_do() -> None:
    offered, run = Offered(WordEncoder().encode), mooring("h1", "a")
    own, other = mooring("h2", "a"), mooring("h3", "b", "Auk", "C3", 55)

    def found() -> list[bool]:
        return [reachable(offered, run, kept(run), place) for place in range(5)]

    assert found() == [False] * 5
    offered.learn(decision_points(own))
    assert found() == [False] * 5
    offered.learn(decision_points(other))
    assert found() == [True, True, False, False, False]
