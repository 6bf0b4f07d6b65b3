"""Unread rows: which were not read as trajectories, by reason, and the checks that a row must pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from storage.errors import WrongInput
from tasks.induce.trajectories.cleaning import ELEMENT, has_element, is_web
from tasks.induce.trajectories.outline import is_cut
from tasks.induce.trajectories.record import Step, Trajectory, trajectory_of

MOST_STEPS = 1_000
MOST_CHARACTERS = 2 * 1024 * 1024  # of an observation, and of the arguments of an action
_DEEPEST = 64  # objects and lists in one another
_MOST_DETAIL = 500  # characters


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that was not read.

    `place` is the file and the row's number in it, `trajectory_id` None where it is not known, `detail` what
    was found and what to do.
    """

    place: str
    trajectory_id: str | None
    reason: str
    detail: str


class NotRead(WrongInput):
    """A row is no trajectory; `reason` is a short stable code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def unread(place: str, row: object, error: NotRead) -> Unread:
    """Return what is kept of a row that was not read."""
    told = row.get("trajectory_id") if isinstance(row, Mapping) else None
    detail = str(error).removeprefix(f"{place}: ")
    return Unread(place, told if isinstance(told, str) else None, error.reason, detail[:_MOST_DETAIL])


def object_of(value: object) -> Mapping[str, object]:
    """Return a value that is an object and not too deep.

    Raises:
        NotRead: It is none; the reasons are `no-object` and `too-deep`.
    """
    if not isinstance(value, Mapping):
        msg = "a line holds no JSON object; write one trajectory a line"
        raise NotRead("no-object", msg)
    inside: list[object] = [value]
    for _ in range(_DEEPEST):
        inside = [each for held in inside for each in _entries(held)]
        if not inside:
            return value
    msg = f"more than {_DEEPEST} objects and lists stand in one another; write the inner ones as texts"
    raise NotRead("too-deep", msg)


def _entries(held: object) -> Iterator[object]:
    entries: Iterable[object] = held.values() if isinstance(held, Mapping) else ()
    yield from (
        each
        for each in (held if isinstance(held, list) else entries)
        if isinstance(each, Mapping | list)
    )  # fmt: skip


def checked(row: Mapping[str, object]) -> Trajectory:
    """Return the trajectory of a row.

    Raises:
        NotRead: It is none; the reasons are those of `object_of`, `too-many-steps`, `wrong-field`,
            `page-too-long`, `text-too-long` and `unknown-element`.
    """
    object_of(row)
    steps = row.get("steps")
    if isinstance(steps, list) and len(steps) > MOST_STEPS:
        msg = f"it has {len(steps):,} steps, more than {MOST_STEPS:,}; split it by task"
        raise NotRead("too-many-steps", msg)
    try:
        trajectory = trajectory_of(row)
    except WrongInput as error:
        raise NotRead("wrong-field", str(error)) from error
    _check_lengths(trajectory)
    _check_elements(trajectory)
    return trajectory


def _check_lengths(trajectory: Trajectory) -> None:
    _check_length("page-too-long", "the final observation", trajectory.final)
    _check_length("text-too-long", "the task", trajectory.task)
    for place, step in enumerate(trajectory.steps):
        _check_length("page-too-long", f"the observation of step {place}", step.observation)
        args = json.dumps(step.action.args, ensure_ascii=False)
        _check_length("text-too-long", f"args of step {place}", args)


def _check_length(reason: str, name: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        msg = (
            f"{name}: {len(text):,} characters, more than {MOST_CHARACTERS:,}; shorten it, and mark where a "
            "page was cut by a line `...`"
        )
        raise NotRead(reason, msg)


def _check_elements(trajectory: Trajectory) -> None:
    """Raise `NotRead` if an action is on an element that its page does not have, unless an error says so.

    Where a page was cut the element may have stood behind the cut.
    """
    if not is_web(trajectory):
        return
    for place, step in enumerate(trajectory.steps):
        if not _may_be(step):
            msg = (
                f"step {place} acts on element {str(step.action.args[ELEMENT])[:40]!r}, which is not on its "
                "page; give the page that the agent saw, or the error that the action had"
            )
            raise NotRead("unknown-element", msg)


def _may_be(step: Step) -> bool:
    failed = ELEMENT not in step.action.args or step.error is not None
    return failed or has_element(step) or is_cut(step.observation)
