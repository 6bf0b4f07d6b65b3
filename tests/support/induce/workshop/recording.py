"""Recordings of the workshop's tasks, made in a browser."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from playwright.sync_api import Browser

from tasks.induce.replay.chromium import Limits, opened_page
from tasks.induce.trajectories.outline import folded, outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tests.support.induce.workshop.application import Workshop
from tests.support.induce.workshop.tasks import Done, Task

_GIVEN = {"fill": "text", "select_option": "option", "keyboard_press": "key"}


def recorded(browser: Browser, shop: Workshop, task: Task) -> Trajectory:
    """Do a task from a reset on, and return what was seen and done."""
    shop.records.reset()
    steps = []
    with opened_page(browser, shop.url, Limits()) as page:
        for t, done in enumerate(task.done):
            seen, action = page.look(partial(_action, done), lambda found: found[1] is not None)
            assert action is not None, f"{done} is not on the page:\n{seen}"
            steps.append(Step(t, seen, action))
            page.do(action)
        page.settle()
        final = page.look(str, bool)
    name = re.sub(r"\W", "-", f"{task.kind}-{task.number}")
    return Trajectory(name, name, "workshop", task.text, True, tuple(steps), final)


def _action(done: Done, seen: str) -> tuple[str, Action | None]:
    """Return a page with what is done on it, by an element's id; None if it is not there."""
    name, on, ordinal, value = done
    args: dict[str, Any] = {_GIVEN[name]: value} if name in _GIVEN else {}
    if on:
        role, _, label = on.partition(" ")
        element = outline_of(seen).find(role, folded(label), ordinal)
        if element is None:
            return seen, None
        args["element"] = element.element_id
    return seen, Action(name, args)
