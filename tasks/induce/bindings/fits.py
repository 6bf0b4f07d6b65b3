"""Fits: whether a skill does what was done next, in name, target and arguments."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.induce.bindings.bind import NARROW, names
from tasks.induce.bindings.values import at_path, is_known, same
from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, Source
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep


def misfit(body: Body, task: str, steps: Sequence[CleanStep], start: int) -> int | None:
    """Return the first action of a skill that is not what was done from a step on; None if all are.

    An argument that the caller gives fits where the caller can know it when the skill begins; one that can be
    known only inside the skill must come out of its source as it was recorded.
    """
    for place, action in enumerate(body):
        if start + place >= len(steps) or not _fits(action, task, steps, start, start + place):
            return place
    return None


def begins(action: SkillAction, task: str, step: CleanStep) -> bool:
    """Tell whether an action is that of a step, in name and target, arguments aside."""
    if action.name != step.action.name or step.action.speaks:
        return False
    element = step.element
    if element is None:
        is_gone = step.outline is not None and ELEMENT in step.action.args
        return action.role is None and not is_gone
    if action.role is None:
        return element.role not in NARROW and names(task, element.label)
    return (element.role, element.label) == (action.role, action.target)


def _fits(action: SkillAction, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    step = steps[place]
    if not begins(action, task, step) or {name for name, _ in action.args} != set(step.action.args):
        return False
    return all(_comes(source, name, task, steps, start, place) for name, source in action.args)


def _comes(source: Source, name: str, task: str, steps: Sequence[CleanStep], start: int, place: int) -> bool:
    """Tell whether a source gives an argument of a step as it was recorded."""
    step, value = steps[place], steps[place].action.args[name]
    match source:
        case Arg() if name == ELEMENT and step.outline is not None:
            page, element = steps[start].outline, step.element
            return page is not None and element is not None and page.holds(element)
        case Arg():
            return is_known(value, task, steps, start, place)
        case Const():
            return bool(source.value == value)
        case Result(number, path):
            if not 0 <= number < place - start:
                return False
            given = at_path(steps[start + number].result, path)
            return given is not None and same(given, value)
        case Find(ordinal):
            return step.element is not None and step.element.ordinal == ordinal
