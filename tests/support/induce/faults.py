"""One fault in a skill, drawn at random: an action left out, arguments swapped, another path or element."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tasks.induce.replay.window import SourceWindow
from tasks.induce.skills.actions import KEY, Body, Find, Path, Result, SkillAction, Source
from tasks.induce.skills.windows import at_path
from tasks.induce.trajectories.cleaning import ELEMENT

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
