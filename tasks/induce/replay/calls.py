"""Calls: the values that a caller gives to a skill at a window, read off the recording."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tasks.induce.bindings.values import is_known
from tasks.induce.replay.window import Broken, Call, SourceWindow
from tasks.induce.skills.actions import Arg, Body, SkillAction
from tasks.induce.skills.naming import parameter_name
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep
from tasks.induce.trajectories.outline import Element


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
                element = _pointed(step, window)
                if element is None:
                    return Broken(number, f"{name} of {action.name} is not on the page of the call")
                call[source.name] = element
                continue
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


def _pointed(step: CleanStep, window: SourceWindow) -> Element | None:
    """Return the element of the page of the call that a step acts on."""
    page, element = window.steps[window.start].outline, step.element
    if page is None or element is None:
        return None
    return page.find(element.role, element.label, element.ordinal)


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
