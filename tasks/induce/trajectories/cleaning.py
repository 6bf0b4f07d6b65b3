"""Cleaning: of a trajectory's steps those that did something, with what each acted on and what came of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tasks.induce.trajectories.outline import Element, PageOutline, outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory

ELEMENT = "element"  # the argument of an action of the web that names what it acts on
_TOOL = re.compile(r"\A(\w+) returned: ")
_USER = "user: "
_INWARD = frozenset({"think", "get_input_from_user"})  # tools that do nothing outside the agent


@dataclass(frozen=True, slots=True)
class CleanStep:
    """A step that was kept; `place` is its place in the trajectory, from 0 on.

    `outline` is the page, None where the domain is one of tools; `element` what was acted on; `result` what
    a tool gave, parsed where it is JSON, None where it gave nothing.
    """

    place: int
    t: int
    observation: str
    action: Action
    outline: PageOutline | None
    element: Element | None
    result: Any
    url: str = ""
    title: str = ""

    @property
    def target(self) -> tuple[str, str | None, str | None]:
        """The action's name, and role and label of what it acted on."""
        element = self.element
        return (self.action.name, element.role, element.label) if element else (self.action.name, None, None)


def cleaned(trajectory: Trajectory) -> tuple[list[CleanStep], Counter[str]]:
    """Return the steps that are kept, and how many fell out by reason.

    Reasons are `error`, `inward` (a tool that does nothing outside the agent), `no-change` (a page was the
    same after it), `repeat` (the action is the one kept before).
    """
    web = is_web(trajectory)
    kept: list[CleanStep] = []
    reasons: Counter[str] = Counter()
    for place, step in enumerate(trajectory.steps):
        after = trajectory.after(place)
        if reason := _reason(step, kept[-1].action if kept else None, after, web=web):
            reasons[reason] += 1
        else:
            kept.append(_clean_step(place, step, after, web=web))
    return kept, reasons


def is_web(trajectory: Trajectory) -> bool:
    """Tell whether a trajectory is of a domain of pages: one of its actions names an element of a page.

    A tool may have an argument of that name too; then nothing that it was told is a page with that element.
    """
    return any(
        ELEMENT in step.action.args and (has_element(step) or not _is_told(step.observation))
        for step in trajectory.steps
    )


def _is_told(observation: str) -> bool:
    """Tell whether an observation begins as those of a domain of tools do."""
    return observation.startswith(_USER) or answering_tool(observation) is not None


def answering_tool(observation: str) -> str | None:
    """Return the name of the tool whose answer an observation begins with; None if it is none."""
    found = _TOOL.match(observation)
    return found[1] if found else None


def has_element(step: Step) -> bool:
    """Tell whether the page of a step has the element that its action names."""
    return str(step.action.args.get(ELEMENT)) in outline_of(step.observation).elements


def _clean_step(place: int, step: Step, after: str, *, web: bool) -> CleanStep:
    outline = outline_of(step.observation) if web else None
    named = str(step.action.args.get(ELEMENT)) if outline else ""
    element = outline.elements.get(named) if outline else None
    head = f"{step.action.name} returned: "
    result = None if web or not after.startswith(head) else parsed(after.removeprefix(head))
    return CleanStep(
        place, step.t, step.observation, step.action, outline, element, result, step.url, step.title
    )


def _reason(step: Step, last: Action | None, after: str, *, web: bool) -> str | None:
    if step.error is not None:
        return "error"
    if step.action.name in _INWARD:
        return "inward"
    if web and not step.action.speaks and after == step.observation:
        return "no-change"
    return "repeat" if step.action == last else None


def parsed(text: str) -> Any:  # noqa: ANN401
    """Return what a tool's text says: an object or a list of JSON, else the text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict | list) else text
