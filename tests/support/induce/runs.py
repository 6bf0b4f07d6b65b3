"""Small runs of agents, written by hand: a greenhouse's web application and the tools of a harbour."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tasks.induce.skills.actions import (
    Arg,
    Body,
    Const,
    Find,
    Result,
    SkillAction,
    Source,
    const,
    is_name,
    is_sayable,
)
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.trajectories.record import Action, Step, Trajectory

Call = tuple[str, Mapping[str, Any], object]  # a tool, its arguments, what it gave
Done = tuple[str, str, str, Mapping[str, Any]]  # a page, an action, `role name` or nothing, other arguments


def page(*elements: str, first: int = 1) -> str:
    """Return the outline of a page: of each `role name` an element, with ids from `first` on."""
    lines = []
    for number, element in enumerate(elements, first):
        role, _, name = element.partition(" ")
        lines.append(f"[{number}] {role} {json.dumps(name, ensure_ascii=False)}")
    return "\n".join(lines)


_ADDRESS = "http://green.example/#/beds/7"
HOME = page("link Beds", "link Orders 12", "button Help")
BEDS = page("link Beds", "link Orders 12", "button Add bed", "clickable Tomato bed north", first=20)
FORM = page("textbox Name", "combobox Soil", "button Save", "button Cancel", first=40)


def web_run(
    task: str, done: Sequence[Done], final: str = HOME, *, name: str = "g1", task_id: str = ""
) -> Trajectory:
    """Return a successful run in the greenhouse's application."""
    steps = tuple(
        Step(t, seen, Action(action, {**_element(seen, on), **args}), None, _ADDRESS, "Green")
        for t, (seen, action, on, args) in enumerate(done)
    )
    return Trajectory(name, task_id or name, "greenhouse", task, True, steps, final)


def _element(seen: str, on: str) -> dict[str, str]:
    if not on:
        return {}
    role, _, name = on.partition(" ")
    return {"element": next(i for i, line in _lines(seen).items() if line == f"{role} {json.dumps(name)}")}


def _lines(seen: str) -> dict[str, str]:
    return {line[1:].partition("] ")[0]: line.partition("] ")[2] for line in seen.splitlines()}


def add_bed(name: str, task_id: str, bed: str = "Fern corner", soil: str = "loam") -> Trajectory:
    """Return a run that adds a bed: opens the beds, the form, and fills it in."""
    done: list[Done] = [
        (HOME, "click", "link Beds", {}),
        (BEDS, "click", "button Add bed", {}),
        (FORM, "fill", "textbox Name", {"text": bed}),
        (FORM + " value", "select_option", "combobox Soil", {"option": soil}),
        (FORM + " value on", "click", "button Save", {}),
    ]
    return web_run(f"Add the bed {bed} with {soil}.", done, name=name, task_id=task_id)


def tool_run(task: str, calls: Sequence[Call], *, name: str = "h1", task_id: str = "") -> Trajectory:
    """Return a run of the harbour's tools; a call that speaks is answered by what it gave."""
    seen, steps = f"user: {task}", []
    for t, (tool, args, given) in enumerate(calls):
        steps.append(Step(t, seen, Action(tool, dict(args))))
        text = given if isinstance(given, str) else json.dumps(given)
        seen = f"user: {text}" if steps[-1].action.speaks else f"{tool} returned: {text}"
    return Trajectory(name, task_id or name, "harbour", task, True, tuple(steps), seen)


def mooring(name: str, task_id: str, boat: str = "Petrel", berth: str = "B7", fee: int = 40) -> Trajectory:
    """Return a run that finds a berth for a boat, holds it, takes the fee, and says and writes so."""
    calls: list[Call] = [
        ("find_berth", {"boat": boat}, {"berth": {"code": berth}, "fee": fee}),
        ("hold_berth", {"code": berth}, {"status": "held"}),
        ("take_fee", {"amount": fee}, {"status": "paid"}),
        ("send_msg_to_user", {"text": "It is yours."}, "Thank you."),
        ("send_receipt", {"boat": boat}, "sent"),
    ]
    return tool_run(f"Moor the {boat} tonight.", calls, name=name, task_id=task_id)


def kept(trajectory: Trajectory) -> list[CleanStep]:
    """Return the steps that cleaning keeps."""
    return cleaned(trajectory)[0]


def call(name: str, **args: Source) -> SkillAction:
    """Return an action of a tool."""
    return SkillAction(name, None, None, tuple(sorted(args.items())))


def press(role: str, target: str, element: Source | None = None, /, name: str = "click") -> SkillAction:
    """Return an action on an element, which the caller gives where nothing else is said."""
    return SkillAction(name, role, target, (("element", element or Arg("element")),))


# What JSON holds, with keys that look like other things.
KEYS = st.sampled_from(["a", "b", "@key", "@id", "0", "7", "", "ß ü", "status", "on"]) | st.text(max_size=3)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.sampled_from(["1", "7", "B7", "held", "@key", "", "true", "None"])
    | st.text(max_size=4)
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)

_NAMES = st.from_regex(r"[^\W\d]\w{0,5}", fullmatch=True).filter(is_name)
_SAYABLE = (_NAMES | st.sampled_from(["q", "element", "code"])).filter(is_sayable)
_LABELS = st.sampled_from(["add bed", "", "a 'quoted' \"name\"", "日本", "x\\n"]) | st.text(max_size=5)


@st.composite
def any_body(draw: st.DrawFn, least: int = 2, most: int = 5) -> Body:
    """Draw any body that `checked` lets pass."""
    body = []
    for place in range(draw(st.integers(least, most))):
        role = draw(st.none() | st.sampled_from(["button", "menuitem-radio"]) | st.text(max_size=3))
        target = None if role is None else draw(_LABELS)
        sources: list[st.SearchStrategy[Source]] = [st.builds(Arg, _NAMES), st.builds(Const, JSON.map(const))]
        if place:
            path = st.lists(KEYS | st.integers(0, 5), max_size=3).map(tuple)
            sources.append(st.builds(Result, st.integers(0, place - 1), path))
        args: dict[str, Source] = draw(st.dictionaries(_SAYABLE, st.one_of(sources), max_size=3))
        if role is not None and draw(st.booleans()):
            args["element"] = Find(draw(st.integers(0, 9)))
        body.append(SkillAction(draw(_NAMES), role, target, tuple(sorted(args.items(), key=lambda a: a[0]))))
    return tuple(body)


_ARGUMENTS = st.sampled_from(["code", "boat", "from", "on", "date_from", "class", "ﬁ", "_", "A b"])
_TOOLS = st.sampled_from(["find_berth", "hold_berth", "import", "send_msg_to_user", "think"])
_CALLS = st.lists(st.tuples(_TOOLS, st.dictionaries(_ARGUMENTS, JSON, max_size=2), JSON), max_size=7)
TOOL_RUNS = st.builds(tool_run, st.sampled_from(["moor 7", "a B7 held boat"]), _CALLS)

_ELEMENTS = st.sampled_from([
    "button Save", "button Save 2", "link Tomato bed", "textbox ", "textbox Name",
    "clickable Fern corner by the door", "checkbox 日本", "link 12", "link __",
])  # fmt: skip
_PAGES = st.lists(_ELEMENTS, min_size=1, max_size=5)


@st.composite
def web_runs(draw: st.DrawFn) -> Trajectory:
    """Draw a run over random pages of the greenhouse's application."""
    done = []
    for t in range(draw(st.integers(0, 7))):
        seen = page(*draw(_PAGES), first=draw(st.sampled_from([1, 50])))
        element = draw(st.sampled_from(sorted(outline_of(seen).elements)) | st.just("999"))
        more = draw(st.dictionaries(st.sampled_from(["text", "option"]), LEAVES, max_size=1))
        on = {} if draw(st.integers(0, 5)) == 0 else {"element": element}
        done.append(
            Step(t, seen, Action(draw(st.sampled_from(["click", "fill", "send_msg_to_user"])), on | more))
        )
    task = draw(st.sampled_from(["Open the tomato bed", "Save fern corner by the 日本 12", ""]))
    return Trajectory("g", "g", "greenhouse", task, True, tuple(done), HOME)
