"""Verify an induced skill: replay it in all its source windows before it is kept.

Over recorded states (SGDR, section 4.1, https://arxiv.org/abs/2606.04391, without an environment) each action
must come out exactly as it was recorded: what an action gave, and the page it met, are those of the
recording, so that the first difference ends the replay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from storage.errors import WrongInput
from tasks.induce.replay.command import CommandReplay
from tasks.induce.replay.environment import CommandEnvironment, LineProcess
from tasks.induce.replay.window import (
    Broken,
    Call,
    NotTaken,
    SourceWindow,
    arguments_at,
    call_at,
    crossed,
    no_element,
)
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
            if (reason := _target(body[place], step)) is None:
                results = [earlier.result for earlier in inside[:place]]
                find = step.outline.find if step.outline is not None else no_element
                given = arguments_at(body, place, call, results, find)
                if isinstance(given, Broken):
                    return given
                reason = _arguments(step, given)
            if reason is not None:
                return Broken(place, reason)
        goes_on = len(body) > len(inside)
        return Broken(len(inside), "the skill goes on where the window ends") if goes_on else None


def _target(action: SkillAction, step: CleanStep) -> str | None:
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


Source = tuple[str, int]
_COMMAND, _BROWSER = "command:", "browser:"
_INSTEAD = "command:python -m tasks.induce.replay.chromium"


class Replay(Protocol):
    """A way to do a window again with a skill in place of its actions."""

    @property
    def name(self) -> str:
        """What a verdict calls it."""
        ...

    def takes(self, body: Body, window: SourceWindow) -> bool:
        """Tell whether it can replay a skill in a window."""
        ...

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Return what is broken, None if the window is done again; raises `NotTaken` if it proves nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """What replaying a skill showed: it may be kept where nothing is `broken`.

    `how` names the replays that it passed, `sources` are those that verified it, `broken` is what it did
    wrong, at the source `where`; that is None where the skill is wrong by itself.
    """

    how: tuple[str, ...]
    sources: tuple[Source, ...]
    broken: Broken | None = None
    where: Source | None = None


def verify(body: Body, windows: Iterable[SourceWindow], replay: Replay) -> ReplayVerdict:
    """Return how and by which sources a skill is verified, or why it is dropped.

    One source in which it does something else drops it: it would do so in other places too. A source whose
    caller could not know a value proves nothing; at least one must be left. Windows that a replay does not
    take are replayed over their recorded states.
    """
    wrong = crossed(body)
    if wrong is not None:
        return ReplayVerdict((), (), wrong)
    how, sources = set[str](), list[Source]()
    unknown: tuple[Broken, Source] | None = None
    for window in windows:
        call = call_at(body, window)
        if isinstance(call, Broken):
            unknown = unknown or (call, window.source)
            continue
        name, broken = _replayed(body, window, call, replay)
        if broken is not None:
            return ReplayVerdict((), tuple(sources), broken, window.source)
        how.add(name)
        sources.append(window.source)
    if sources:
        return ReplayVerdict(tuple(sorted(how)), tuple(sources))
    return ReplayVerdict((), (), *(unknown or (Broken(0, "there is no source to replay it in"), None)))


def _replayed(body: Body, window: SourceWindow, call: Call, replay: Replay) -> tuple[str, Broken | None]:
    """Return the name of the replay that did a window, and what is broken."""
    if replay.takes(body, window):
        with contextlib.suppress(NotTaken):
            return replay.name, replay.replay(body, window, call)
    recorded = RecordedReplay()
    return recorded.name, recorded.replay(body, window, call)


@contextlib.contextmanager
def opened(how: str, folder: Path) -> Iterator[Replay]:
    """Open a replay by its spec: `recorded`, or `command:CMD` with the folder it runs in.

    Raises:
        WrongInput: The spec is none of these, or the command line cannot be read.
        EnvironmentUnusable: The command cannot be started.
    """
    if how == RecordedReplay.name:
        yield RecordedReplay()
    elif how.startswith(_COMMAND):
        with LineProcess(how.removeprefix(_COMMAND), folder) as process:
            yield CommandReplay(CommandEnvironment(process))
    elif how.startswith(_BROWSER):
        raise WrongInput(f"{how} was deleted: say '{_INSTEAD} {how.removeprefix(_BROWSER)}'")
    else:
        raise WrongInput(f"{how!r} is no way to verify skills: say recorded or command:CMD")
