"""Decisions, and the measures over them."""

from __future__ import annotations

from tasks.evaluate.stream.decisions import MEASURES, Decision, mean, reachable
from tasks.induce.windows.recurrence import moments
from tasks.retrieve.suggest.offered import Offered
from tests.support.induce.runs import kept, mooring
from tests.support.models.word_models import WordEncoder


def decision(usable: int, *, begun: bool, reachable: bool, walked: bool) -> Decision:
    return Decision("h1", "a", "harbour", 0, usable, begun, reachable, walked)


def test_a_decision_adds_one_or_nothing_to_each_measure() -> None:
    one = decision(3, begun=True, reachable=True, walked=False)
    other = decision(0, begun=False, reachable=True, walked=True)

    assert [one.value(measure) for measure in MEASURES] == [1, 1, 0, 1]
    assert [other.value(measure) for measure in MEASURES] == [0, 0, 1, 1]
    assert [mean([one, other, other, other], measure) for measure in MEASURES] == [0.25, 0.25, 0.75, 1]


def test_the_mean_of_no_decisions_is_nothing() -> None:
    assert [mean([], measure) for measure in MEASURES] == [0, 0, 0, 0]


def test_reachable_is_what_any_skill_of_another_task_would_do() -> None:
    offered, run = Offered(WordEncoder().encode), mooring("h1", "a")
    own, other = mooring("h2", "a"), mooring("h3", "b", "Auk", "C3", 55)

    def found() -> list[bool]:
        return [reachable(offered, run, kept(run), place) for place in range(5)]

    assert found() == [False] * 5
    offered.learn(moments(own))
    assert found() == [False] * 5
    offered.learn(moments(other))
    assert found() == [True, True, False, False, False]
