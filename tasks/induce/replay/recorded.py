"""Replay over recorded states: each action of a skill must come out exactly as it was recorded.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391), without an environment: what an action gave, and
the page it met, are those of the recording, so that the first difference ends the replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.induce.replay.arguments import arguments_at
from tasks.induce.replay.window import Broken, Call, SourceWindow
from tasks.induce.skills.actions import Body, SkillAction, const
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep
from tasks.induce.trajectories.outline import Element

_SHOWN = 60  # characters of a value in a reason


class RecordedReplay:
    """Replays skills over the recorded states of their windows; takes every window."""

    name = "recorded"

    def takes(self, body: Body, window: SourceWindow) -> bool:
        """Tell whether a skill can be replayed in a window: each can."""
        return len(body) > 0 and window.length > 0

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Return the first action that differs from the recording; None if a skill does a window again."""
        inside = window.inside
        for place, step in enumerate(inside):
            if place == len(body):
                return Broken(place, f"the skill ends before {step.action.name}")
            results = [earlier.result for earlier in inside[:place]]
            find = step.outline.find if step.outline is not None else _nowhere
            given = arguments_at(body, place, call, results, find)
            reason = _target(body[place], step)
            if reason is None and isinstance(given, Broken):
                return given
            if reason is None and not isinstance(given, Broken):
                reason = _arguments(step, given)
            if reason is not None:
                return Broken(place, reason)
        return (
            Broken(len(inside), "the skill goes on where the window ends")
            if len(body) > len(inside)
            else None
        )


def _nowhere(role: str, label: str, ordinal: int) -> None:  # noqa: ARG001 (tools have no elements)
    return None


def _target(action: SkillAction, step: CleanStep) -> str | None:
    """Return how an action's name or target differs from a step's."""
    if action.name != step.action.name:
        return f"{action.name} is done, {step.action.name} was"
    if step.action.speaks:
        return f"{action.name} speaks to a person"
    if action.role is None:  # left to the caller, or there is no page
        return None
    held = step.element
    if held is None:
        return f"{action.name} is on {action.role} {action.target!r}, and was on no element"
    if (action.role, action.target) != (held.role, held.label):
        return f"{action.name} is on {action.role} {action.target!r}, and was on {held.role} {held.label!r}"
    return None


def _arguments(step: CleanStep, given: Mapping[str, Any]) -> str | None:
    """Return how arguments differ from a step's."""
    name, recorded = step.action.name, step.action.args
    if more := sorted(given.keys() - recorded.keys()):
        return f"{name} is given {', '.join(more)}, which was not given"
    if less := sorted(recorded.keys() - given.keys()):
        return f"{name} is not given {', '.join(less)}, which was given"
    for key, found in given.items():
        value = found.element_id if isinstance(found, Element) else found
        held = str(recorded[key]) if key == ELEMENT and step.outline is not None else recorded[key]
        if const(value) != const(held):  # as JSON, which tells a truth from a number
            return f"{key} of {name} is {_shown(value)}, and was {_shown(held)}"
    return None


def _shown(value: object) -> str:
    text = const(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
