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
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from storage.errors import EnvironmentUnusable
from tasks.evaluate.agents.task import AgentTask
from tasks.induce.replay.command import done_as_called
from tasks.induce.replay.environment import CommandEnvironment, LiveAnswer
from tasks.induce.replay.window import Broken
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.skills.windows import Target
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import Element, outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.models.llm.budget import Ceiling

_DONE, _READ, _SEARCH = "done", "read_skill", "search_skills"
_ACTIONS = {
    _DONE: ("done()", "ends the task: call it once all that was asked for is done"),
    _READ: ("read_skill(skill)", "gives the text of a listed skill"),
    _SEARCH: ("search_skills(query)", "lists skills for what you need to know"),
}


class GivenSkill(NamedTuple):
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


class Supply(NamedTuple):
    """What a method gives at a step, by what is seen and the action before, and what it finds when asked.

    Of one that is `silent` nothing can be seen to be used: it gives nothing, or shows all at once.
    """

    at: Callable[[str, Target | None], Sequence[GivenSkill]] = lambda *_: ()
    find: Callable[[str], Sequence[GivenSkill]] | None = None
    silent: bool = False


class Turn(NamedTuple):
    """What an agent knows when it acts; `before` has records `{did, error, seen}` of its earlier turns."""

    task: AgentTask
    number: int
    actions: Mapping[str, str]
    skills: Sequence[GivenSkill]
    seen: str
    error: str | None
    before: Sequence[Mapping[str, object]]


class Act(NamedTuple):
    """What an agent does, what the turn cost, and ids of skills that it goes by, None if it does not say.

    `failed` says why there is no action that can be read; the attempt is over then.
    """

    name: str
    args: Mapping[str, Any]
    tokens: int = 0
    cost: float = 0.0
    used: Sequence[str] | None = None
    failed: str | None = None


class Unfinished(Exception):
    """An attempt could not go on, for no fault of the agent; the text is the reason, and it is made again."""


@dataclass(slots=True)
class Limits:
    """What attempts may take: turns and seconds each, and in all until a time, tokens and money."""

    turns: int = 30
    seconds: float = 600.0
    until: float = float("inf")  # by `time.monotonic`
    ceiling: Ceiling = field(default_factory=Ceiling)
    tokens: int = 0  # spent so far
    cost: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spend(self, act: Act) -> None:
        """Count what a turn cost; threads may share this."""
        with self._lock:
            self.tokens, self.cost = self.tokens + act.tokens, self.cost + act.cost

    def require(self) -> None:
        """Raise `Unfinished` if nothing more may be spent."""
        limits = ((self.ceiling.tokens, self.tokens), (self.ceiling.money, self.cost))
        if any(most is not None and spent >= most for most, spent in limits):
            reason = "budget"
        elif time.monotonic() > self.until:
            reason = "time"
        else:
            return
        raise Unfinished(reason)


class _Acting:
    """An attempt under way: what is seen, what was done, and which skills were given and used."""

    def __init__(self, task: AgentTask, environment: CommandEnvironment, supply: Supply) -> None:
        self.task, self._environment, self._supply = task, environment, supply
        self.steps, self.used = list[Step](), set[str]()
        self.given, self.now = dict[str, GivenSkill](), list[GivenSkill]()
        self._found: Sequence[GivenSkill] = ()
        self._target: Target | None = None
        reset = environment.reset(task.told.domain)
        if reset.error is not None:
            raise EnvironmentUnusable(environment.command, "reset", f"{task.task_id}: {reset.error}")
        self._pages = reset.pages
        self.seen = self._page() if reset.pages else f"user: {task.instruction}\n{reset.observation}".rstrip()

    def _page(self) -> str:
        return self._environment.page(None).observation

    def look(self) -> dict[str, str]:
        """Ask the method what it gives now, and return what the agent may do."""
        offered = {one.skill_id: one for one in (*self._supply.at(self.seen, self._target), *self._found)}
        self.now = list(offered.values())
        self.given |= offered
        can = {_DONE: True, _READ: any(one.form == "read" for one in self.now), _SEARCH: self._supply.find}
        return {**self.task.told.actions, **dict(_ACTIONS[name] for name, can_do in can.items() if can_do)}

    def do(self, act: Act) -> tuple[str, str | None]:
        """Do what an agent does; return what it sees, and what went wrong."""
        asked = act.args.get("skill")
        for one in self.now:
            is_read = act.name == _READ and one.form == "read" and asked in (one.skill_id, one.name)
            if is_read or (one.form == "call" and one.name == act.name):
                self.used.add(one.skill_id)
                return (one.text, None) if is_read else self._called(one, act.args)
        if act.name == _READ:
            return "", f"there is no skill {asked!r} to read"
        if act.name == _SEARCH and self._supply.find is not None:
            self._found = self._supply.find(str(act.args.get("query", "")))
            return json.dumps([one.told() for one in self._found], ensure_ascii=False), None
        element = outline_of(self.seen).elements.get(str(act.args.get(ELEMENT))) if self._pages else None
        answer = self._step(Action(act.name, act.args), element)
        return self.seen, answer.error

    def _step(self, action: Action, on: Element | None) -> LiveAnswer:
        """Do an action of the environment, and note it as induction reads it."""
        args = {name: value for name, value in action.args.items() if not (on and name == ELEMENT)}
        answer = self._environment.step(Action(action.name, args), on)
        noted = Action(action.name, {**args, ELEMENT: on.element_id} if on else args)
        self.steps.append(Step(len(self.steps), self.seen, noted, answer.error))
        self._target = (action.name, on.role, on.label) if on else (action.name, None, None)
        self.seen = self._page() if self._pages else f"{action.name} returned: {answer.observation}"
        return answer

    def _called(self, skill: GivenSkill, args: Mapping[str, Any]) -> tuple[str, str | None]:
        shown, began = outline_of(self.seen).elements if self._pages else {}, len(self.steps)
        sources = (action.source(ELEMENT) for action in skill.body)
        elements = {source.name for source in sources if isinstance(source, Arg)}
        call = {n: shown.get(str(value), value) if n in elements else value for n, value in args.items()}
        done = done_as_called(skill.body, call, lambda *on: outline_of(self.seen).find(*on), self._step)
        error = f"its action {done.place + 1}: {done.reason}" if isinstance(done, Broken) else None
        after = [*(step.observation for step in self.steps[began + 1 :]), self.seen]
        return (self.seen if self._pages else "\n".join(after)), error


def attempt(
    task: AgentTask, environment: CommandEnvironment, agent: Callable[[Turn], Act], supply: Supply,
    limits: Limits, name: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Let an agent act until it ends, or its turns or seconds are over, and score what it leaves.

    Returns:
        `score`, `turns`, `tokens`, `cost`, `seconds`; `ended` (`done`, `turns`, `seconds`, `agent`) and
        `error` of the last; `skills` given and those `used`, read or called (None if the supply is silent and
        the agent says nothing); `trajectory`, whose id is `name`.

    Raises:
        Unfinished: The budget is spent, or the agent's server does not answer.
        EnvironmentStopped, EnvironmentUnusable: The environment died, or does not speak as it should.
    """
    acting, began, ended, wrong = _Acting(task, environment, supply), time.monotonic(), "turns", None
    seen, acts, before = acting.seen, list[Act](), list[dict[str, object]]()
    while len(acts) < limits.turns:
        if time.monotonic() - began > limits.seconds:
            ended = "seconds"
            break
        limits.require()
        actions = acting.look()
        act = agent(Turn(task, len(acts) + 1, actions, acting.now, seen, wrong, before))
        limits.spend(act)
        acts.append(act)
        if act.failed is not None:
            limits.require()  # what all attempts may take may be over, which is no fault of the agent
            ended = "seconds" if time.monotonic() - began > limits.seconds else "agent"
            break
        if act.name == _DONE:
            ended = _DONE
            break
        seen, wrong = acting.do(act)
        told = ", ".join(f"{key}={value!r}" for key, value in act.args.items())
        before.append({"did": f"{act.name}({told})", "error": wrong, "seen": seen})
    score, steps = task.score(environment), tuple(acting.steps)
    used = acting.used | {one for act in acts for one in act.used or () if one in acting.given}
    unsaid = supply.silent and all(act.used is None for act in acts)
    run = Trajectory(name, task.task_id, task.domain, task.instruction, score >= 1, steps, acting.seen)
    return {
        "score": score, "turns": len(acts), "tokens": sum(act.tokens for act in acts),
        "cost": sum(act.cost for act in acts), "seconds": round(time.monotonic() - began, 3), "ended": ended,
        "error": acts[-1].failed if acts else None, "skills": sorted(acting.given),
        "used": None if unsaid else sorted(used), "trajectory": asdict(run),
    }  # fmt: skip
