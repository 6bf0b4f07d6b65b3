"""The memory of an agent: what methods that learn from trajectories keep of them, and give at a step.

Of each method it holds what SGDR's paper says (sections 4 and 5.1, https://arxiv.org/abs/2606.04391): SGDR
gives procedures at each step, by task and state; the others choose at the start, by the task, and keep that:
ASI whole procedures as programs, AWM the same in words, CER whole experiences with what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tasks.evaluate.agents.attempt import GivenSkill, Supply
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


class LearnedMethod(NamedTuple):
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


class Procedures:
    """Procedures of one domain, `k` of which are given at once; it may begin with those that are served."""

    def __init__(
        self, method: LearnedMethod, encode: Encode, k: int,
        served: tuple[dict[Body, InducedSkill], Offered] | None = None,
    ) -> None:  # fmt: skip
        self._method, self._encode, self._k = method, encode, k
        self._skills, self._offered = served or ({}, Offered(encode))

    def learn(self, trajectory: Trajectory) -> None:
        """Learn of a trajectory that succeeded."""
        self._offered.learn(decision_points(trajectory, self._method.granularity))

    def supply(self, task: AgentTask) -> Supply:
        """Return what is given at the steps of a task; nothing that comes from the same task alone."""
        (of_task,) = self._encode([task.instruction])
        first: list[tuple[Vectors, Sequence[GivenSkill]]] = []

        def at(seen: str, before: Target | None) -> Sequence[GivenSkill]:
            if first and not self._method.stepwise:
                return first[0][1]
            (state,) = self._encode([summed_up(seen, "", "")])
            start = first[0][0] if first else state
            said = task.instruction
            asked = SkillQuestion(of_task, state, start, before, page_seen(seen), task.task_id, text=said)
            offers = self._method.choose(self._offered, asked, self._k)
            found = [self._given(task.domain, offer.skill) for offer in offers]
            # Two whole procedures that differ in where arguments come from are one in words.
            first.append((state, list({one.text: one for one in found}.values())))
            return first[-1][1]

        return Supply(at, silent=self._method.form == "shown")

    def _given(self, domain: str, number: int) -> GivenSkill:
        body, does = self._offered.skills[number], self._offered.description(number)
        own, skill_id = self._skills.get(body), skill_id_of(domain, body)
        name = own.name if own else with_id(function_name(body), skill_id)
        text = does if self._method.form == "shown" else code_of(name, body)
        return GivenSkill(skill_id, name, does, text, self._method.form, body)


class Experiences:
    """Trajectories of one domain, of which the `k` nearest by their tasks are given (CER)."""

    def __init__(self, encode: Encode, k: int) -> None:
        self._encode, self._k, self._held = encode, k, list[Trajectory]()

    def learn(self, trajectory: Trajectory) -> None:
        """Keep a trajectory that succeeded."""
        self._held.append(trajectory)

    def supply(self, task: AgentTask) -> Supply:
        """Return what is given: the same at each step, and nothing of the same task."""
        others = [one for one in self._held if one.task_id != task.task_id]
        asked, *vectors = self._encode([task.instruction, *(one.task for one in others)])
        near = [float(vector @ asked) for vector in vectors]
        order = sorted(range(len(others)), key=lambda place: -near[place])[: self._k]
        given = [_experience(others[place]) for place in order]
        return Supply(lambda *_: given, silent=True)


def _experience(one: Trajectory) -> GivenSkill:
    """Return a trajectory as text: the task, what was done and what came of it, and what was seen last."""
    told = record_of(one)
    text = f"Task: {told['intent']}\n{told['actions']}\nIn the end: {told['final_state']}"
    return GivenSkill(f"trajectory:{one.trajectory_id}", one.task, one.task, shortened(text, _MOST), "shown")


Memory = Procedures | Experiences
