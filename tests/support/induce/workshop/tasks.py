"""Tasks in the workshop: thirty of ten kinds, how each is recorded in a browser, and what is left."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page

from tasks.induce.replay.chromium import Limits, opened_page
from tasks.induce.replay.window import Call, SourceWindow
from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.outline import Element, folded, outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory
from tests.support.induce.faults import Done as Effect
from tests.support.induce.faults import done
from tests.support.induce.workshop.application import Workshop

# An action, `role name` of what it is on, its ordinal, and what it is given.
Done = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Task:
    """A task: its kind and its number in it, what an agent is told, and what it does."""

    kind: str
    number: int
    text: str
    done: tuple[Done, ...]


def _click(on: str, ordinal: int = 0) -> Done:
    return ("click", on, ordinal, "")


def _fill(on: str, text: str, ordinal: int = 0) -> Done:
    return ("fill", f"textbox {on}", ordinal, text)


def _select(on: str, option: str) -> Done:
    return ("select_option", f"combobox {on}", 0, option)


def tasks() -> list[Task]:
    """Return the tasks, those of each kind together."""
    return [*_jobs(), *_changes(), *_orders(), *_people()]


def _jobs() -> Iterator[Task]:
    new = [
        ("Silver Giant", "Gears", "Cleo", "It skips on hills"),
        ("Pink Union", "Wheels", "Ben", "The rear wheel wobbles"),
        ("Old Fongers", "Gears", "Ada", "Third gear slips"),
    ]
    for number, (bicycle, kind, mechanic, complaint) in enumerate(new):
        yield Task(
            "new job", number, f"Open an urgent job for {bicycle}, {kind}, by {mechanic}: {complaint}",
            (_click("link Jobs"), _click("link New job"), _fill("Bicycle", bicycle), _select("Kind", kind),
             _select("Mechanic", mechanic), _click("checkbox Urgent"), _fill("Complaint", complaint),
             _click("button Save job")),
        )  # fmt: skip
    rows = ["Red Gazelle Brakes Ada open", "Blue Batavus Gears Ben open", "White Cortina Gears Ada open"]
    for number, row in enumerate(rows):
        bicycle = " ".join(row.split()[:2])
        opened = (_click("link Jobs"), _click(f"clickable {row}"))
        yield Task("start", number, f"Start the {bicycle}", (*opened, _click("button Start work")))
        reason = ("No parts", "Customer left", "No parts")[number]
        yield Task(
            "cancel", number, f"Cancel the job of the {bicycle} for: {reason}, and tell the customer",
            (*opened, _click("button Cancel job"), _select("Reason", reason),
             _click("checkbox Tell the customer"), _click("button Cancel job")),
        )  # fmt: skip


def _changes() -> Iterator[Task]:
    rows = ["Green Brompton Wheels Cleo", "Grey Koga Brakes Ben", "Black Sparta Wheels Ben"]
    for number, row in enumerate(rows):
        bicycle, note = " ".join(row.split()[:2]), ("Rim is bent", "Pads are worn", "Spoke is gone")[number]
        opened = _click(f"clickable {row} in work")
        yield Task(
            "note", number, f"Write on the job of the {bicycle}: {note}",
            (_click("link Jobs"), opened, _fill("Note", note), _click("button Add note")),
        )  # fmt: skip
        yield Task(
            "finish", number, f"Of the bicycles in work finish the {bicycle}, noting: {note}",
            (_click("link Jobs"), _select("Status", "in work"), _click("button Show"), opened,
             _fill("Note", note), _click("button Add note"), _click("button Finish")),
        )  # fmt: skip


def _orders() -> Iterator[Task]:
    for number, (part, pieces) in enumerate([("Saddle", "3"), ("Chain", "8"), ("Inner tube", "40")]):
        yield Task(
            "search", number, f"Order {pieces} of the part {part}",
            (_click("link Parts"), _fill("Search parts", part), ("keyboard_press", "", 0, "Enter"),
             _fill("Pieces", pieces), _click("button Order")),
        )  # fmt: skip
    for number, (place, pieces) in enumerate([(1, "5"), (2, "6"), (4, "7")]):
        yield Task(
            "order", number, f"Order {pieces} of the part in place {place} of the list",
            (_click("link Parts"), _fill("Pieces", pieces, place), _click("button Order", place)),
        )  # fmt: skip
    for number, (first, second) in enumerate([(0, 3), (2, 1), (3, 4)]):
        yield Task(
            "remove", number, f"Order 2 of the part {first}, 9 of the part {second}, and remove the second",
            (_click("link Parts"), _fill("Pieces", "2", first), _click("button Order", first),
             _click("link Parts"), _fill("Pieces", "9", second), _click("button Order", second),
             _click("button Remove", 1)),
        )  # fmt: skip


def _people() -> Iterator[Task]:
    people = [("Omar Haddad", "030 987"), ("Iris Vos", "030 654"), ("Lena Maas", "030 321")]
    for number, (name, phone) in enumerate(people):
        yield Task(
            "customer", number, f"Set the phone of {name} to {phone} and send them no newsletter",
            (_click("link Customers"), _click(f"link {name}"), _fill("Phone", phone),
             _click("checkbox Newsletter"), _click("button Save customer")),
        )  # fmt: skip
    for number, greeting in enumerate(["Good day", "Welcome", "Ride on"]):
        yield Task(
            "settings", number, f"Open on the weekend, send reminders, and greet with: {greeting}",
            (_click("link Settings"), _click("radio Weekend"), _click("checkbox Send reminders"),
             _fill("Greeting", greeting), _click("button Save settings")),
        )  # fmt: skip


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


_MS, _CALM_MS = 600, 100  # that an element may take to come, and what it starts: the workshop takes a few
Left = dict[str, Any] | None


def left(browser: Browser, shop: Workshop, body: Body, call: Call, window: SourceWindow) -> Left:
    """Return the facts of the workshop after a trajectory with a skill; None if it cannot go on."""
    shop.records.reset()
    own: list[Effect] = []
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


def _act(page: Page, done: Effect) -> None:
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
