"""The memory of an agent: what methods that learn from trajectories keep of them, and give at a step.

Of each method it holds what SGDR's paper says (sections 4 and 5.1, https://arxiv.org/abs/2606.04391): SGDR
gives procedures at each step, by task and state; the others choose at the start, by the task, and keep that:
ASI whole procedures as programs, AWM the same in words, CER whole experiences with what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tasks.evaluate.agents.attempt import GivenSkill, Supply, nothing
from tasks.evaluate.agents.task import AgentTask
from tasks.induce.library.judge import record_of
from tasks.induce.skills.actions import Body, Granularity
from tasks.induce.skills.skill import InducedSkill, code_of, function_name, skill_id_of, with_id
from tasks.induce.skills.windows import Target, decision_points
from tasks.induce.skills.wording import summed_up
from tasks.induce.trajectories.outline import page_seen
from tasks.induce.trajectories.record import Trajectory
from tasks.models.llm.quoting import shortened
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.methods import METHODS, Encode, Method, Offered, SkillQuestion

_MOST = 4_000  # characters of an experience


class Memory(Protocol):
    """What a method has learned of one domain."""

    def learn(self, trajectory: Trajectory) -> None:
        """Learn of a trajectory that succeeded."""
        ...

    def supply(self, task: AgentTask) -> Supply:
        """Return what it gives at the steps of a task; nothing that comes from the same task alone."""
        ...


@dataclass(frozen=True, slots=True)
class LearnedMethod:
    """A method that offers procedures: what they are cut out of, how chosen, and how an agent gets them."""

    granularity: Granularity
    choose: Method
    form: Literal["shown", "call"]
    stepwise: bool


LEARNED: dict[str, LearnedMethod] = {
    "sgdr": LearnedMethod("window", METHODS["sgdr"], "call", stepwise=True),
    "suggest": LearnedMethod("window", METHODS["default"], "call", stepwise=True),
    "asi": LearnedMethod("trajectory", METHODS["task"], "call", stepwise=False),
    "awm": LearnedMethod("trajectory", METHODS["task"], "shown", stepwise=False),
}
CER = "cer"
MEMORIES = (*LEARNED, CER)
"""Names of the methods that learn."""

Served = tuple[dict[Body, InducedSkill], Offered]  # as `ServedSkills.offered` gives it


def memory_of(name: str, domain: str, encode: Encode, k: int, served: Callable[[], Served | None]) -> Memory:
    """Return the memory of a method of `MEMORIES`, with nothing learned yet.

    Args:
        name: The method.
        domain: What it learns of.
        encode: Returns unit vectors of texts.
        k: So many are given at once.
        served: Returns the procedures that are served; asked for by methods of windows alone.
    """
    if name == CER:
        return _Experiences(encode, k)
    method = LEARNED[name]
    known = served() if method.granularity == "window" else None
    return _Procedures(method, domain, encode, k, *(known or ({}, Offered(encode))))


class _Procedures:
    def __init__(
        self, method: LearnedMethod, domain: str, encode: Encode, k: int,
        skills: dict[Body, InducedSkill], offered: Offered,
    ) -> None:  # fmt: skip
        self._method, self._domain, self._encode, self._k = method, domain, encode, k
        self._skills, self._offered = skills, offered

    def learn(self, trajectory: Trajectory) -> None:
        self._offered.learn(decision_points(trajectory, self._method.granularity))

    def supply(self, task: AgentTask) -> Supply:
        (of_task,), first = self._encode([task.instruction]), list[GivenSkill]()
        start: Vectors | None = None

        def at(seen: str, before: Target | None) -> Sequence[GivenSkill]:
            nonlocal start, first
            if start is not None and not self._method.stepwise:
                return first
            (of_state,) = self._encode([summed_up(seen, "", "")])
            start = of_state if start is None else start
            page = page_seen(seen)
            asked = SkillQuestion(of_task, of_state, start, before, page, task.task_id)
            first = self._given(offer.skill for offer in self._method.choose(self._offered, asked, self._k))
            return first

        return Supply(at, silent=self._method.form == "shown")

    def _given(self, numbers: Iterable[int]) -> list[GivenSkill]:
        found: dict[str, GivenSkill] = {}
        for number in numbers:
            body = self._offered.skills[number]
            own, skill_id = self._skills.get(body), skill_id_of(self._domain, body)
            name = own.name if own else with_id(function_name(body), skill_id)
            does = self._offered.description(number)
            text = does if self._method.form == "shown" else code_of(name, body)
            # Two whole procedures that differ in where arguments come from are one in words.
            found[text] = GivenSkill(skill_id, name, does, text, self._method.form, body)
        return list(found.values())


class _Experiences:
    """Trajectories, the nearest by their tasks (CER)."""

    def __init__(self, encode: Encode, k: int) -> None:
        self._encode, self._k = encode, k
        self._held: list[Trajectory] = []

    def learn(self, trajectory: Trajectory) -> None:
        self._held.append(trajectory)

    def supply(self, task: AgentTask) -> Supply:
        others = [one for one in self._held if one.task_id != task.task_id]
        if not others:
            return Supply(nothing, silent=True)
        (asked,) = self._encode([task.instruction])
        near = self._encode([one.task for one in others]) @ asked
        order = sorted(range(len(others)), key=lambda place: -float(near[place]))[: self._k]
        given = [_experience(others[place]) for place in order]
        return Supply(lambda *_: given, silent=True)


def _experience(one: Trajectory) -> GivenSkill:
    """Return a trajectory as text: the task, what was done with what came of it, and what was said."""
    told = record_of(one)
    text = f"Task: {told['intent']}\n{told['actions']}\nIn the end: {told['final_state']}"
    return GivenSkill(f"run/{one.trajectory_id}", one.task, one.task, shortened(text, _MOST), "shown")
