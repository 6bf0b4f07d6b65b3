"""Arguments of a skill's action when its turn comes: from the call, earlier results, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.induce.bindings.values import at_path
from tasks.induce.replay.window import Broken, Call
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, Source
from tasks.induce.trajectories.outline import Element, PageOutline


class _Unresolved(Exception):
    """A source gives nothing; its text is the reason."""


def arguments_at(
    body: Body, place: int, call: Call, results: Sequence[Any], page: PageOutline | None
) -> dict[str, Any] | Broken:
    """Return the arguments of the action at a place, elements by their ids on the page.

    Args:
        body: The skill's actions.
        place: The number of the action, from 0.
        call: What the caller gives.
        results: What the actions before gave, in order.
        page: The page at this time; None where the domain is one of tools.
    """
    action = body[place]
    try:
        return {name: _given(action, name, source, call, results, page) for name, source in action.args}
    except _Unresolved as reason:
        return Broken(place, str(reason))


def _given(
    action: SkillAction,
    name: str,
    source: Source,
    call: Call,
    results: Sequence[Any],
    page: PageOutline | None,
) -> Any:  # noqa: ANN401
    match source:
        case Const():
            return source.value
        case Arg(parameter):
            if parameter not in call:
                msg = f"{name} of {action.name} is in no call: nothing was recorded for {parameter}"
                raise _Unresolved(msg)
            value = call[parameter]
            return _again(action, value, page) if isinstance(value, Element) else value
        case Result(number, path):
            return _read(action, name, number, path, results)
        case Find(ordinal):
            return _id_of(action.role, action.target, ordinal, page)


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


def _again(action: SkillAction, element: Element, page: PageOutline | None) -> str:
    """Return the id of an element that the caller gave on the page as it is now."""
    if action.role is not None and (action.role, action.target) != (element.role, element.label):
        msg = f"{action.name} is on {action.role} {action.target!r}, not on {element.role} {element.label!r}"
        raise _Unresolved(msg)
    return _id_of(element.role, element.label, element.ordinal, page)


def _id_of(role: str | None, label: str | None, ordinal: int, page: PageOutline | None) -> str:
    element = page.find(role, label, ordinal) if page is not None and role and label is not None else None
    if element is None:
        msg = f"the page has no {role} {label!r} with the ordinal {ordinal}"
        raise _Unresolved(msg)
    return element.element_id
