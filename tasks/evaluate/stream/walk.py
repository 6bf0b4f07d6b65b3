"""The walk along an online stream: each step is asked before its trajectory is learned from.

A step at which skills were offered, and what came of it, is a decision. After SGDR, section 3.2 (https://arxiv.org/abs/2606.04391).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.induce.skills.actions import Body
from tasks.induce.skills.windows import DecisionPoint, begins, decision_points, last_actions, misfit
from tasks.induce.skills.wording import summed_up
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.outline import page_seen
from tasks.induce.trajectories.record import Step, Trajectory
from tasks.retrieve.suggest.methods import Encode, Method, Offered, SkillQuestion

MEASURES = ("usable@5", "action@5", "decisions", "reachable")
_OFFERED = 5  # skills at a step


@dataclass(frozen=True, slots=True)
class Decision:
    """A step of a successful trajectory that speaks to nobody, at which skills were offered.

    `usable` is the number of actions of the longest skill offered that does exactly what was done next, 0 if
    none of two actions (`Stream`: `least`) or more does; `begun` whether one of them begins with what was
    done, arguments aside; `reachable` whether any skill learned by then would have been usable; `walked`
    whether an agent that uses the longest one wherever it can decides here.
    """

    trajectory_id: str
    task_id: str
    domain: str
    t: int
    usable: int
    begun: bool
    reachable: bool
    walked: bool

    def value(self, measure: str) -> float:
        """Return what it adds to one of `MEASURES`, 0 or 1."""
        held = {
            "usable@5": self.usable > 0, "action@5": self.begun, "decisions": self.walked,
            "reachable": self.reachable,
        }  # fmt: skip
        return float(held[measure])


def reachable(
    offered: Offered, trajectory: Trajectory, kept: Sequence[CleanStep], place: int, least: int = 2
) -> bool:
    """Tell whether any skill that does not come from the trajectory's own task alone is usable."""
    support = offered.support(trajectory.task_id)
    return any(
        support[number] > 0 and len(body) >= least and misfit(body, trajectory.task, kept, place) is None
        for number, body in enumerate(offered.skills)
    )


Suggested = Callable[[Trajectory, Step, Sequence[Body]], None]


def has_succeeded(trajectory: Trajectory) -> bool:
    """Tell whether a trajectory's own verdict is success."""
    return trajectory.success is True


class Stream:
    """How a stream is walked.

    `encode` returns unit vectors of texts, `teaches` the moments that a trajectory teaches; `learned` tells
    whether it is learned from, and `least` how many actions a usable skill has at least. `suggested` is told
    what the first method offers at each step of each trajectory, of those too that are no decision points.
    """

    def __init__(
        self, encode: Encode,
        teaches: Callable[[Trajectory], list[DecisionPoint]] = decision_points,
        learned: Callable[[Trajectory], bool] = has_succeeded, suggested: Suggested | None = None,
        least: int = 2,
    ) -> None:  # fmt: skip
        self.encode, self.learned, self._least = encode, learned, least
        self._teaches, self._suggested = teaches, suggested
        self.offered: defaultdict[str, Offered] = defaultdict(lambda: Offered(encode))

    def teach(self, trajectories: Iterable[Trajectory]) -> None:
        """Learn trajectories before the next question; all of them count as successful."""
        for one in trajectories:
            self.offered[one.domain].learn(self._teaches(one))

    def walk(
        self, trajectories: Iterable[Trajectory], methods: Mapping[str, Method]
    ) -> Iterator[tuple[str, Decision]]:
        """Yield the decisions at the steps of successful trajectories, in their order, of each method."""
        for trajectory in trajectories:
            yield from self._asked(trajectory, methods)
            if self.learned(trajectory):
                self.teach([trajectory])

    def _asked(self, one: Trajectory, methods: Mapping[str, Method]) -> Iterator[tuple[str, Decision]]:
        kept, _ = cleaned(one)
        deciding = {step.place: number for number, step in enumerate(kept) if not step.action.speaks}
        wanted = list(range(len(one.steps))) if self._suggested else sorted(deciding)
        if not wanted or not (self._suggested or one.success):
            return
        asked, own = list(self.questions(one, kept, wanted)), self.offered[one.domain]
        least = self._least
        near = {place: reachable(own, one, kept, number, least) for place, number in deciding.items()}
        for turn, (name, method) in enumerate(methods.items()):
            stands_at = 0
            for place, question in asked:
                is_told = turn == 0 and self._suggested is not None
                is_decided = place in deciding and one.success
                if not (is_told or is_decided):
                    continue
                skills = [own.skills[offer.skill] for offer in method(own, question, _OFFERED)]
                if is_told and self._suggested is not None:
                    self._suggested(one, one.steps[place], skills)
                if is_decided:
                    number = deciding[place]
                    long = [skill for skill in skills if len(skill) >= least]
                    walked = number >= stands_at
                    decision = _decision(skills, long, one, kept, number, near[place], walked=walked)
                    if decision.walked and decision.usable:
                        stands_at = number + decision.usable
                    yield name, decision

    def questions(
        self, trajectory: Trajectory, kept: Sequence[CleanStep], wanted: Sequence[int]
    ) -> Iterator[tuple[int, SkillQuestion]]:
        """Yield the places that are wanted, each with what is asked there."""
        before, shown = last_actions(trajectory, kept), [trajectory.steps[place] for place in (0, *wanted)]
        states = [summed_up(one.observation, one.url, one.title) for one in shown]
        task, start, *vectors = self.encode([trajectory.task, *states])
        for place, step, state in zip(wanted, shown[1:], vectors, strict=True):
            asked = task, state, start, before[place], page_seen(step.observation)
            yield place, SkillQuestion(*asked, trajectory.task_id, place, trajectory.task)


def _decision(
    skills: Sequence[Body], long: Sequence[Body], one: Trajectory, kept: Sequence[CleanStep], number: int,
    is_reachable: bool, *, walked: bool,
) -> Decision:  # fmt: skip
    step = kept[number]
    fitting = [len(body) for body in long if misfit(body, one.task, kept, number) is None]
    return Decision(
        one.trajectory_id, one.task_id, one.domain, step.t,
        usable=max(fitting, default=0),
        begun=any(begins(body[0], one.task, step) for body in skills), reachable=is_reachable, walked=walked,
    )  # fmt: skip
