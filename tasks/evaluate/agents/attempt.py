"""An attempt at a task: an agent acts in an environment, with the skills that a method gives it.

Beside the environment's own actions an agent may end (`done`), read a skill that it was shown by name and
description (`read_skill`), search for skills where the method lets it (`search_skills`), and call a learned
skill by its name, which does all its actions. It is a language model or a command that answers lines.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from storage.errors import EnvironmentStopped, EnvironmentUnusable
from tasks.evaluate.agents.task import AgentTask
from tasks.induce.replay.command import done_as_called
from tasks.induce.replay.environment import CommandEnvironment, LineProcess, LiveAnswer
from tasks.induce.replay.window import Broken
from tasks.induce.skills.actions import Arg, Body
from tasks.induce.skills.windows import Target
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import Element, outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.budget import Ceiling
from tasks.models.llm.prompt import Answer, Prompt, Text, Values
from tasks.models.llm.quoting import shortened

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


_NOW, _BEFORE = 12_000, 600  # characters of what is seen now, and of what was seen earlier


class _Argument(Answer):
    name: Text
    value: Annotated[Text, BeforeValidator(lambda own: own if isinstance(own, str) else json.dumps(own))]


def _listed(value: object) -> object:
    """Take an object of arguments for the list of them."""
    return [{"name": n, "value": own} for n, own in value.items()] if isinstance(value, dict) else value


class _ActAnswer(Answer):
    thought: Text
    name: Text
    args: Annotated[list[_Argument], BeforeValidator(_listed)]


_ACT: Prompt[_ActAnswer] = Prompt("agent-act-1", "tasks.evaluate/agent_act_rules.txt", _ActAnswer)


def llm_agent(llm: Llm, attempt: int = 0) -> Callable[[Turn], Act]:
    """Return an agent that asks a language model for each action, with all that it did before.

    Answers are kept: what was asked in an attempt that was killed is not paid for again, and still counts;
    for each `attempt` they are drawn anew. The agent raises `Unfinished` if the ceiling is reached or the
    server does not answer. Its LLM is asked by this agent alone; others may share its account.
    """
    cache, own = llm.cache, llm.sampling
    drawn = replace(own, seed=None if own.seed is None else own.seed + attempt)

    def act(turn: Turn) -> Act:
        before, ids = (cache.prompt_tokens, cache.completion_tokens), [one.skill_id for one in turn.skills]
        values = Values("What do you do now?", _records(turn), ids, sampling=drawn, attempt=attempt)
        said = llm.ask(_ACT, values)
        took = cache.prompt_tokens - before[0], cache.completion_tokens - before[1]
        spent = sum(took), llm.ledger.prices.of(*took)
        if not isinstance(said, Fallback):
            return Act(said.name, {one.name: _value(one.value) for one in said.args}, *spent)
        if said.early:
            raise Unfinished(said.reason)
        return Act("", {}, *spent, failed=said.detail)

    return act


def _records(turn: Turn) -> list[Mapping[str, object]]:
    return [
        {"task": turn.task.instruction},
        *({"action": said, "does": does} for said, does in turn.actions.items()),
        *({key: shortened(text, _NOW) for key, text in one.told().items()} for one in turn.skills),
        *({**one, "seen": shortened(str(one["seen"]), _BEFORE)} for one in turn.before[:-1]),
        *({**one, "seen": "as now"} for one in turn.before[-1:]),
        {"now": shortened(turn.seen, _NOW), "error": turn.error},
    ]  # fmt: skip


def _value(text: str) -> Any:  # noqa: ANN401
    """Return an argument: a list or an object if the text is one of JSON, else the text."""
    try:
        return json.loads(text) if text[:1] in ("[", "{") else text
    except (ValueError, RecursionError):
        return text


@contextmanager
def command_agent(
    command: str, seconds: float, attempt: int = 0, left: Callable[[], float] = lambda: math.inf
) -> Iterator[Callable[[Turn], Act]]:
    """Yield an agent that asks a command for each action by a line of JSON, in one process an attempt.

    What it is asked stands below; it answers `{"name", "args"}`, and may say `tokens` and `cost` of the turn,
    and in `used` the ids of skills that it goes by. It sees the environment of this process. Raises as
    `LineProcess`.
    """
    with LineProcess(command, Path.cwd(), seconds, variables=dict(os.environ), left=left) as process:

        def act(turn: Turn) -> Act:
            asked = {
                "task_id": turn.task.task_id, "instruction": turn.task.instruction, "attempt": attempt,
                "domain": turn.task.domain, "turn": turn.number, "actions": turn.actions,
                "skills": [one.told() for one in turn.skills], "seen": turn.seen, "error": turn.error,
            }  # fmt: skip
            try:
                said = json.loads(process.ask(json.dumps(asked)))
                spent = max(int(said.get("tokens", 0)), 0), max(float(said.get("cost", 0)), 0.0)
                own = str(said["name"]), dict(said.get("args") or {})
                json.dumps(own, ensure_ascii=False).encode()  # half a character cannot be kept
                if not math.isfinite(spent[1]):
                    return Act("", {}, failed=f"answered with a cost of {spent[1]}")
                return Act(*own, *spent, used=list(map(str, said["used"])) if "used" in said else None)
            except (EnvironmentStopped, EnvironmentUnusable) as error:
                return Act("", {}, failed=str(error))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
                return Act("", {}, failed=f"answered with no {{name, args, tokens, cost, used}}: {error!r}")

        yield act
