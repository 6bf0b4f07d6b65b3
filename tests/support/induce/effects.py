"""What a skill does when it is called as its sound form is: a second opinion on the replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.induce.replay.environment import CommandEnvironment
from tasks.induce.replay.window import Call, SourceWindow
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, Source
from tasks.induce.skills.windows import at_path
from tasks.induce.trajectories.record import Action

Done = tuple[str, str | None, str | None, dict[str, Any]]
_NOTHING = ("nothing",)  # what is not there; no argument is a tuple


def done(body: Body, call: Call, window: SourceWindow) -> list[Done]:
    """Return what is done over the recorded states: name, target and arguments of each action."""
    results = [step.result for step in window.inside]
    return [_done(action, call, results[:place]) for place, action in enumerate(body)]


def _done(action: SkillAction, call: Call, results: Sequence[Any]) -> Done:
    args = {name: _value(source, call, results) for name, source in action.args}
    return (action.name, action.role, action.target, args)


def _value(source: Source, call: Call, results: Sequence[Any]) -> object:
    match source:
        case Const():
            return source.value
        case Arg(name):
            return call.get(name, _NOTHING)
        case Find(ordinal):
            return ordinal
        case Result(number, path):
            found = at_path(results[number], path) if number < len(results) else None
            return _NOTHING if found is None else found


def outcome(
    body: Body, call: Call, window: SourceWindow, environment: CommandEnvironment
) -> tuple[list[object], str] | None:
    """Return what was seen from the start of a window on, and the digest; None if the skill cannot go on."""
    environment.reset(window.domain)
    for step in window.steps[: window.start]:
        environment.step(step.action)
    results: list[Any] = []
    seen: list[object] = []
    for action in body:
        name, _, _, args = _done(action, call, results)
        if _NOTHING in args.values():
            return None
        answer = environment.step(Action(name, args))
        results.append(answer.result(name))
        seen.append(answer)
    later = window.steps[window.start + window.length :]
    seen += [environment.step(step.action) for step in later]
    return seen, environment.digest()
