"""Windows in which skills are replayed: what a caller gives there, and the arguments of their actions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.induce.skills.actions import Arg, Body, Const, Find, Granularity, Result, SkillAction, Source
from tasks.induce.skills.skill import parameter_name
from tasks.induce.skills.windows import DecisionPoint, at_path, decision_points, is_known
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep, cleaned
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Trajectory

# What a caller gives by the names of a skill's parameters: values, and elements (`outline.Element`).
Call = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The steps of a trajectory for which one call of a skill stands: `length` of them from `start` on.

    `steps` are all steps of the trajectory that cleaning kept; `start` is a place among them.
    """

    trajectory_id: str
    domain: str
    task: str
    steps: Sequence[CleanStep]
    start: int
    length: int

    @property
    def inside(self) -> Sequence[CleanStep]:
        """The steps for which the call stands."""
        return self.steps[self.start : self.start + self.length]

    @property
    def source(self) -> tuple[str, int]:
        """The trajectory and the number of the step at which the window begins."""
        return self.trajectory_id, self.steps[self.start].t


def source_windows(
    trajectory: Trajectory, granularity: Granularity = "window"
) -> Iterator[tuple[DecisionPoint, Body, SourceWindow]]:
    """Yield the skills of a trajectory, each once a moment, with the window that it was learned from."""
    steps, _ = cleaned(trajectory)
    acting = [place for place, step in enumerate(steps) if not step.action.speaks]
    own = (trajectory.trajectory_id, trajectory.domain, trajectory.task, steps)
    for moment, place in zip(decision_points(trajectory, granularity), acting, strict=True):
        for body in dict.fromkeys(moment.bodies):
            yield moment, body, SourceWindow(*own, place, len(body))


class NotTaken(Exception):
    """A window cannot be replayed, though it was taken; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A skill does not do what it must: the action, counted from 0, and the reason."""

    place: int
    reason: str


def call_at(body: Body, window: SourceWindow) -> Call | Broken:
    """Return what a caller gives at a window, or which value no caller could know there.

    A parameter has the value that the recorded action has where the skill uses it first: an element as it
    stands on the page of the call, any other value as recorded. What the recording has no argument for is
    left out.
    """
    call: dict[str, object] = {}
    for number, action, place in _partners(body, window):
        for name, source in action.args:
            step = window.steps[place]
            if not isinstance(source, Arg) or source.name in call or name not in step.action.args:
                continue
            if name == ELEMENT and step.outline is not None:
                page, held = window.steps[window.start].outline, step.element
                value: object = page and held and page.find(held.role, held.label, held.ordinal)
                if value is None:
                    return Broken(number, f"{name} of {action.name} is not on the page of the call")
            else:
                value = step.action.args[name]
                if not is_known(value, window.task, window.steps, window.start, place):
                    return Broken(number, f"{name} of {action.name} is not known when the skill is called")
            call[source.name] = value
    return call


def _partners(body: Body, window: SourceWindow) -> Iterator[tuple[int, SkillAction, int]]:
    """Yield a skill's actions with their numbers and the places at which they were recorded.

    A skill of another length has other actions; each is the next step of its name, if there is one.
    """
    if len(body) == window.length:
        for number, action in enumerate(body):
            yield number, action, window.start + number
        return
    first, end = window.start, window.start + window.length
    for number, action in enumerate(body):
        named = (place for place in range(first, end) if window.steps[place].action.name == action.name)
        place = next(named, None)
        if place is not None:
            first = place + 1
            yield number, action, place


def crossed(body: Body) -> Broken | None:
    """Return the action two of whose arguments are given the parameters named for each other.

    The recording cannot tell: the values that are read off it are crossed as well. A caller goes by names.
    """
    for place, action in enumerate(body):
        given = [(name, source.name) for name, source in action.args if isinstance(source, Arg)]
        for (one, its), (other, others) in itertools.combinations(given, 2):
            if _named_for(action, other, its) and _named_for(action, one, others):
                return Broken(place, f"{one} and {other} of {action.name} are given each other's parameters")
    return None


def _named_for(action: SkillAction, name: str, parameter: str) -> bool:
    named = re.escape(parameter_name(action, name))
    return parameter != "" and re.fullmatch(rf"{named}(_\d+)?", parameter) is not None


Finder = Callable[[str, str, int], Element | None]  # by role, label and ordinal, on a page


def no_element(_role: str, _label: str, _ordinal: int) -> None:
    """Find nothing: tools have no elements."""


class _Unresolved(Exception):
    """A source gives nothing; its text is the reason."""


def arguments_at(
    body: Body, place: int, call: Call, results: Sequence[Any], find: Finder
) -> dict[str, Any] | Broken:
    """Return the arguments of the action at a place, from 0.

    `results` are what the actions before gave, in order; `find` returns an element of the page as it is now.
    """
    action = body[place]
    try:
        return {name: _given(action, name, source, call, results, find) for name, source in action.args}
    except _Unresolved as reason:
        return Broken(place, str(reason))


def _given(
    action: SkillAction, name: str, source: Source, call: Call, results: Sequence[Any], find: Finder
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
        raise _Unresolved(f"{name} of {action.name}: what action {number} gave has nothing at {list(path)}")
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
        raise _Unresolved(f"the page has no {role} {label!r} with the ordinal {ordinal}")
    return element
