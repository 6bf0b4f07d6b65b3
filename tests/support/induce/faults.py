"""One fault in a skill, drawn at random, and what a skill does beside its sound form."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tasks.induce.replay.environment import CommandEnvironment
from tasks.induce.replay.window import Call, SourceWindow
from tasks.induce.skills.actions import KEY, Arg, Body, Const, Find, Path, Result, SkillAction, Source
from tasks.induce.skills.windows import at_path
from tasks.induce.trajectories.cleaning import ELEMENT
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


KINDS = ("left out", "swapped", "other path", "other element")
_DEEPEST = 4  # entries of another path


def with_fault(kind: str, body: Body, window: SourceWindow, rng: random.Random) -> Body | None:
    """Return a skill with a fault of a kind; None if it has no place for one."""
    match kind:
        case "left out":
            return left_out(body, rng)
        case "swapped":
            return swapped(body, rng)
        case "other path":
            return other_path(body, [step.result for step in window.inside], rng)
        case _:
            return other_element(body, window, rng)


def left_out(body: Body, rng: random.Random) -> Body:
    """Leave an action out; results of later actions keep belonging to them."""
    gone = rng.randrange(len(body))

    def renumbered(source: Source) -> Source:
        later = isinstance(source, Result) and source.action > gone
        return Result(source.action - 1, source.path) if isinstance(source, Result) and later else source

    left = (action for place, action in enumerate(body) if place != gone)
    return tuple(
        replace(action, args=tuple((name, renumbered(source)) for name, source in action.args))
        for action in left
    )


def swapped(body: Body, rng: random.Random) -> Body | None:
    """Swap where two arguments of an action come from."""
    places = [place for place, action in enumerate(body) if len(action.args) > 1]
    if not places:
        return None
    place = rng.choice(places)
    args = list(body[place].args)
    one, other = rng.sample(range(len(args)), 2)
    (name, source), (its, others) = args[one], args[other]
    args[one], args[other] = (name, others), (its, source)
    return _with_action(body, place, replace(body[place], args=tuple(args)))


def other_path(body: Body, results: Sequence[object], rng: random.Random) -> Body | None:
    """Read an argument off another place of the same result."""
    found = [
        (place, name, source)
        for place, action in enumerate(body)
        for name, source in action.args
        if isinstance(source, Result)
    ]
    if not found:
        return None
    place, name, source = rng.choice(found)
    held = results[source.action]
    others = [path for path in _paths(held, ()) if path != source.path and at_path(held, path) is not None]
    if not others:
        return None
    return _with_source(body, place, name, Result(source.action, rng.choice(others)))


def other_element(body: Body, window: SourceWindow, rng: random.Random) -> Body | None:
    """Let an action be on another element of its page, or on another of those alike."""
    places = [place for place, action in enumerate(body) if action.role is not None]
    if not places:
        return None
    place = rng.choice(places)
    action, page = body[place], window.inside[place].outline
    found = action.source(ELEMENT)
    if isinstance(found, Find) and rng.random() < 0.5:
        return _with_source(body, place, ELEMENT, Find(found.ordinal + 1))
    others = [own for own in (page.counts if page else ()) if own != (action.role, action.target)]
    if not others:
        return None
    role, target = rng.choice(others)
    return _with_action(body, place, replace(action, role=role, target=target))


def _paths(held: object, path: Path) -> Iterator[Path]:
    yield path
    if len(path) < _DEEPEST and isinstance(held, dict):
        for place, (key, each) in enumerate(held.items()):
            yield (*path, place, KEY)
            yield from _paths(each, (*path, key))
    if len(path) < _DEEPEST and isinstance(held, list):
        for place, each in enumerate(held):
            yield from _paths(each, (*path, place))


def _with_source(body: Body, place: int, name: str, source: Source) -> Body:
    args = tuple((own, source if own == name else held) for own, held in body[place].args)
    return _with_action(body, place, replace(body[place], args=args))


def _with_action(body: Body, place: int, action: SkillAction) -> Body:
    return (*body[:place], action, *body[place + 1 :])
