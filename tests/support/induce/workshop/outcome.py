"""What a skill leaves in the workshop, done with Playwright's own locators: a second opinion."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page

from tasks.induce.replay.window import Call, SourceWindow
from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.outline import Element
from tests.support.induce.effects import Done, done
from tests.support.induce.workshop.application import Workshop

_MS, _CALM_MS = 600, 100  # that an element may take to come, and what it starts: the workshop takes a few
Left = dict[str, Any] | None


def left(browser: Browser, shop: Workshop, body: Body, call: Call, window: SourceWindow) -> Left:
    """Return the facts of the workshop after a trajectory with a skill; None if it cannot go on."""
    shop.records.reset()
    own: list[Done] = []
    for step in window.steps:
        on = {"element": step.element} if step.element else {}
        own.append((step.action.name, None, None, {**step.action.args, **on}))
    own[window.start : window.start + window.length] = done(body, call, window)
    context = browser.new_context()
    context.set_default_timeout(_MS)
    with contextlib.closing(context):
        page = context.new_page()
        page.goto(shop.url)
        for each in own:
            try:
                _act(page, each)
            except (Error, KeyError, TypeError):
                return None
            page.wait_for_timeout(_CALM_MS)
        return shop.records.facts()


def _act(page: Page, done: Done) -> None:
    name, role, target, args = done
    if name == "keyboard_press":
        page.keyboard.press(args["key"])
        return
    element = args["element"]
    if isinstance(element, Element):
        if role is not None and (role, target) != (element.role, element.label):
            raise KeyError(element)
        on = _all(page, element.role, element.label).nth(element.ordinal)
    elif isinstance(element, int) and role is not None and target is not None:
        on = _all(page, role, target).nth(element)
    else:
        raise TypeError(element)
    if name == "click":
        on.click()
    elif name == "fill":
        on.fill(args["text"])
    else:
        on.select_option(label=args["option"])


def _all(page: Page, role: str, label: str) -> Locator:
    """Return the elements of a role and a folded label, those of an open dialog first."""
    words = re.compile(r"^\W*" + r"\W+".join(map(re.escape, label.split())) + r"(\W+\d+)?\W*$", re.IGNORECASE)
    above = page.locator("dialog[open]")
    place = above if above.count() else page.locator("body")
    if role == "clickable":
        return place.locator("[onclick]:not(button)").filter(has_text=words)
    return place.get_by_role(role, name=words)  # type: ignore[arg-type] # as told
