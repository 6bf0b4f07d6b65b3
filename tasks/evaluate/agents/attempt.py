"""An attempt at a task: an agent acts in an environment, with the skills that a method gives it.

Beside the environment's own actions an agent may end (`done`), read a skill that it was shown by name and
description (`read_skill`), search for skills where the method lets it (`search_skills`), and call a learned
skill by its name, which does all its actions.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from storage.errors import EnvironmentStopped, EnvironmentUnusable
from tasks.evaluate.agents.task import AgentTask
from tasks.induce.replay.command import done_as_called
from tasks.induce.replay.environment import CommandEnvironment, LiveAnswer
from tasks.induce.replay.window import Broken, no_element
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.skills.windows import Target
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import Element, outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.models.llm.budget import Ceiling

DONE, READ, SEARCH = "done", "read_skill", "search_skills"
ACTIONS: Mapping[str, str] = {
    f"{DONE}()": "ends the task: call it once all that was asked for is done",
    f"{READ}(skill)": "gives the text of a listed skill",
    f"{SEARCH}(query)": "lists skills for what you need to know",
}


@dataclass(frozen=True, slots=True)
class GivenSkill:
    """A skill that an agent is given: its text is read on demand, shown at once, or code that is called."""

    skill_id: str
    name: str
    description: str
    text: str
    form: Literal["read", "shown", "call"] = "read"
    body: Body = ()

    def told(self) -> dict[str, str]:
        """Return what an agent sees of it without asking."""
        whole = {"id": self.skill_id, "name": self.name, "description": self.description, "form": self.form}
        return whole if self.form == "read" else {**whole, "text": self.text}


@dataclass(frozen=True, slots=True)
class Supply:
    """What a method gives at a step, by what is seen and the action before; and what it finds when asked.

    Of one that is `silent` nothing can be seen to be used: it gives nothing, or shows all at once.
    """

    at: Callable[[str, Target | None], Sequence[GivenSkill]]
    find: Callable[[str], Sequence[GivenSkill]] | None = None
    silent: bool = False


def nothing(*_: object) -> Sequence[GivenSkill]:
    """Give no skills."""
    return ()


@dataclass(frozen=True, slots=True)
class Turn:
    """What an agent knows when it acts; `before` has records `{did, error, seen}` of its earlier turns."""

    task: AgentTask
    number: int
    actions: Mapping[str, str]
    skills: Sequence[GivenSkill]
    seen: str
    error: str | None
    before: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Act:
    """What an agent does; `used` are ids of skills that it says it goes by."""

    name: str
    args: Mapping[str, Any]
    used: tuple[str, ...] = ()


class ActingAgent(Protocol):
    """An agent in one attempt."""

    @property
    def tokens(self) -> int:
        """Tokens that it has spent."""
        ...

    @property
    def cost(self) -> float:
        """Money that it has spent."""
        ...

    def act(self, turn: Turn) -> Act:
        """Return what it does; raises `NoAct` or `Unfinished`."""
        ...


class NoAct(Exception):
    """An agent gave no action that can be read, or died; the attempt fails, and the text says why."""


class Unfinished(Exception):
    """An attempt could not go on, for no fault of the agent; the text is the reason, and it is made again."""


@dataclass(slots=True)
class Limits:
    """What attempts may take: turns and seconds each, and in all until a time, tokens and money."""

    turns: int = 30
    seconds: float = 600.0
    until: float | None = None  # by `time.monotonic`
    ceiling: Ceiling = field(default_factory=Ceiling)
    tokens: int = 0  # spent so far
    cost: float = 0.0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spend(self, tokens: int, cost: float) -> None:
        """Count what a turn cost; threads may share this."""
        with self._lock:
            self.tokens, self.cost = self.tokens + tokens, self.cost + cost

    def require(self) -> None:
        """Raise `Unfinished` if nothing more may be spent."""
        tokens, money = self.ceiling.tokens, self.ceiling.money
        if self.stopped or (self.until is not None and time.monotonic() > self.until):
            reason = "time"
        elif (tokens is not None and self.tokens >= tokens) or (money is not None and self.cost >= money):
            reason = "budget"
        else:
            return
        raise Unfinished(reason)


@dataclass(frozen=True, slots=True)
class Attempted:
    """What came of an attempt.

    `ended` is `done`, `turns`, `seconds` or `agent`, with the `error` of the last; `used` are skills that
    were read or called, None if the supply is silent and the agent says nothing.
    """

    score: float
    turns: int
    tokens: int
    cost: float
    seconds: float
    ended: str
    error: str | None
    skills: Sequence[str]
    used: Sequence[str] | None
    trajectory: Trajectory


class _Acting:
    """An attempt under way: what is seen, what was done, and which skills were given and used."""

    def __init__(self, task: AgentTask, environment: CommandEnvironment, supply: Supply) -> None:
        self.task, self._environment, self._supply = task, environment, supply
        self.steps: list[Step] = []
        self.given: dict[str, GivenSkill] = {}
        self.used: set[str] = set()
        self.now: list[GivenSkill] = []
        self._found: list[GivenSkill] = []
        reset = environment.reset(task.told.domain)
        if reset.error is not None:
            raise EnvironmentUnusable(
                environment.command, "reset", f"cannot begin {task.task_id}: {reset.error}"
            )
        self._pages = reset.pages
        self.seen = self._page() if reset.pages else f"user: {task.instruction}\n{reset.observation}".rstrip()
        self._target: Target | None = None

    def _page(self) -> str:
        return self._environment.page(None).observation

    def look(self) -> None:
        """Ask the method what it gives now."""
        offered = {one.skill_id: one for one in (*self._supply.at(self.seen, self._target), *self._found)}
        self.now = list(offered.values())
        self.given |= offered

    def actions(self) -> dict[str, str]:
        """Return what the agent may do."""
        wanted = {READ: any(one.form == "read" for one in self.now), SEARCH: self._supply.find is not None}
        own = {said: does for said, does in ACTIONS.items() if wanted.get(said.partition("(")[0], True)}
        return {**self.task.told.actions, **own}

    def do(self, act: Act) -> tuple[str, str | None]:
        """Do what an agent does; return what it sees, and what went wrong."""
        callable_ = next((one for one in self.now if one.form == "call" and one.name == act.name), None)
        if callable_ is not None:
            self.used.add(callable_.skill_id)
            return self._called(callable_, act.args)
        if act.name == READ:
            return self._read(act.args)
        if act.name == SEARCH and self._supply.find is not None:
            self._found = list(self._supply.find(str(act.args.get("query", ""))))
            return json.dumps([one.told() for one in self._found], ensure_ascii=False), None
        answer = self._step(Action(act.name, dict(act.args)), self._element(act.args))
        return self.seen, answer.error

    def _read(self, args: Mapping[str, Any]) -> tuple[str, str | None]:
        wanted = str(args.get("skill", ""))
        readable = (one for one in self.now if one.form == "read" and wanted in (one.skill_id, one.name))
        skill = next(readable, None)
        if skill is None:
            return "", f"there is no skill {wanted!r} to read"
        self.used.add(skill.skill_id)
        return skill.text, None

    def _element(self, args: Mapping[str, Any]) -> Element | None:
        named = str(args.get(ELEMENT)) if self._pages and ELEMENT in args else None
        return outline_of(self.seen).elements.get(named) if named else None

    def _step(self, action: Action, on: Element | None) -> LiveAnswer:
        """Do an action of the environment, and note it as induction reads it."""
        plain = {name: value for name, value in action.args.items() if name != ELEMENT} if on else action.args
        answer = self._environment.step(Action(action.name, plain), on)
        held = {**plain, ELEMENT: on.element_id} if on else plain
        self.steps.append(Step(len(self.steps), self.seen, Action(action.name, held), answer.error))
        self._target = (action.name, on.role, on.label) if on else (action.name, None, None)
        self.seen = self._page() if self._pages else f"{action.name} returned: {answer.observation}"
        return answer

    def _called(self, skill: GivenSkill, args: Mapping[str, Any]) -> tuple[str, str | None]:
        outline, began = outline_of(self.seen), len(self.steps)
        elements = {
            source.name
            for action in skill.body for name, source in action.args
            if self._pages and name == ELEMENT and isinstance(source, Arg)
        }  # fmt: skip
        call = {
            name: outline.elements.get(str(value), value) if name in elements else value
            for name, value in args.items()
        }

        def find(role: str, label: str, ordinal: int) -> Element | None:
            return outline_of(self.seen).find(role, label, ordinal)

        done = done_as_called(skill.body, call, find if self._pages else no_element, self._step)
        error = (
            f"action {done.place + 1} of {skill.name}: {done.reason}" if isinstance(done, Broken) else None
        )
        after = [*(step.observation for step in self.steps[began + 1 :]), self.seen]
        return (self.seen if self._pages else "\n".join(after)), error


def attempt(
    task: AgentTask, environment: CommandEnvironment, agent: ActingAgent, supply: Supply, limits: Limits,
    name: str = "",
) -> Attempted:  # fmt: skip
    """Let an agent act until it ends, or its turns or seconds are over, and score what it leaves.

    Args:
        task: What is asked.
        environment: Where; it is reset first.
        agent: Who acts.
        supply: What a method gives it.
        limits: How much it may take; tokens and money are counted there too.
        name: The id of its trajectory.

    Raises:
        Unfinished: The budget is spent, or the environment or the agent's server cannot be used any longer.
        EnvironmentUnusable: The environment does not speak as it should.
    """
    try:
        return _attempted(task, environment, agent, supply, limits, name)
    except EnvironmentStopped as error:
        raise Unfinished("environment") from error


def _attempted(
    task: AgentTask, environment: CommandEnvironment, agent: ActingAgent, supply: Supply, limits: Limits,
    name: str,
) -> Attempted:  # fmt: skip
    acting, began, error, ended = _Acting(task, environment, supply), time.monotonic(), None, "turns"
    seen, said, before, turns = acting.seen, set[str](), list[dict[str, object]](), 0
    wrong: str | None = None
    while turns < limits.turns:
        if time.monotonic() - began > limits.seconds:
            ended = "seconds"
            break
        limits.require()
        acting.look()
        spent = agent.tokens, agent.cost
        try:
            act = agent.act(Turn(task, turns + 1, acting.actions(), acting.now, seen, wrong, before))
        except NoAct as reason:
            ended, error = "agent", str(reason)
            break
        finally:
            limits.spend(agent.tokens - spent[0], agent.cost - spent[1])
        turns += 1
        said |= set(act.used) & acting.given.keys()
        if act.name == DONE:
            ended = "done"
            break
        seen, wrong = acting.do(act)
        told = f"{act.name}({', '.join(f'{key}={value!r}' for key, value in act.args.items())})"
        before.append({"did": told, "error": wrong, "seen": seen})
    score = task.score(environment)
    used = acting.used | said
    trajectory = Trajectory(
        name, task.task_id, task.told.domain or task.task_id, task.instruction, score >= 1.0,
        tuple(acting.steps), acting.seen,
    )  # fmt: skip
    return Attempted(
        score, turns, agent.tokens, agent.cost, round(time.monotonic() - began, 3), ended, error,
        sorted(acting.given), None if supply.silent and not used else sorted(used), trajectory,
    )  # fmt: skip
