"""Arguments of a skill's action when its turn comes: from the call, earlier results, and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tasks.induce.bindings.values import at_path
from tasks.induce.replay.window import Broken, Call
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, Source
from tasks.induce.trajectories.outline import Element

Finder = Callable[[str, str, int], Element | None]  # by role, label and ordinal, on a page


class _Unresolved(Exception):
    """A source gives nothing; its text is the reason."""


def arguments_at(
    body: Body, place: int, call: Call, results: Sequence[Any], find: Finder
) -> dict[str, Any] | Broken:
    """Return the arguments of the action at a place.

    Args:
        body: The skill's actions.
        place: The number of the action, from 0.
        call: What the caller gives.
        results: What the actions before gave, in order.
        find: Returns an element of the page as it is at this time.
    """
    action = body[place]
    try:
        return {name: _given(action, name, source, call, results, find) for name, source in action.args}
    except _Unresolved as reason:
        return Broken(place, str(reason))


def _given(
    action: SkillAction,
    name: str,
    source: Source,
    call: Call,
    results: Sequence[Any],
    find: Finder,
) -> Any:  # noqa: ANN401
    match source:
        case Const():
            return source.value
        case Arg(parameter):
            if parameter not in call:
                msg = f"{name} of {action.name} is in no call: nothing was recorded for {parameter}"
                raise _Unresolved(msg)
            value = call[parameter]
            return _again(action, value, find) if isinstance(value, Element) else value
        case Result(number, path):
            return _read(action, name, number, path, results)
        case Find(ordinal):
            return _found(action.role, action.target, ordinal, find)


def _read(
    action: SkillAction, name: str, number: int, path: tuple[str | int, ...], results: Sequence[Any]
) -> Any:  # noqa: ANN401
    if not 0 <= number < len(results):
        msg = f"{name} of {action.name} is read off action {number}, which does not come before it"
        raise _Unresolved(msg)
    found = at_path(results[number], path)
    if found is None:
        msg = f"{name} of {action.name}: what action {number} gave has nothing at {list(path)}"
        raise _Unresolved(msg)
    return found


def _again(action: SkillAction, element: Element, find: Finder) -> Element:
    """Return an element that the caller gave, on the page as it is now."""
    if action.role is not None and (action.role, action.target) != (element.role, element.label):
        msg = f"{action.name} is on {action.role} {action.target!r}, not on {element.role} {element.label!r}"
        raise _Unresolved(msg)
    return _found(element.role, element.label, element.ordinal, find)


def _found(role: str | None, label: str | None, ordinal: int, find: Finder) -> Element:
    element = find(role, label, ordinal) if role and label is not None else None
    if element is None:
        msg = f"the page has no {role} {label!r} with the ordinal {ordinal}"
        raise _Unresolved(msg)
    return element
