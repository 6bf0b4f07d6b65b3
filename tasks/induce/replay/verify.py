"""Verify an induced skill: replay it in all its source windows before it is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage.errors import WrongInput
from tasks.induce.replay.calls import call_at, crossed
from tasks.induce.replay.command import CommandReplay
from tasks.induce.replay.environment import CommandEnvironment
from tasks.induce.replay.line_process import SECONDS, LineProcess
from tasks.induce.replay.recorded import RecordedReplay
from tasks.induce.replay.window import Broken, Call, NotTaken, SourceWindow
from tasks.induce.skills.actions import Body

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
    """What replaying a skill showed.

    `how` names the replays that it passed, `sources` are those that verified it, `broken` is what it did
    wrong, at the source `where`; that is None where the skill is wrong by itself.
    """

    how: tuple[str, ...]
    sources: tuple[Source, ...]
    broken: Broken | None = None
    where: Source | None = None

    @property
    def verified(self) -> bool:
        """Whether the skill may be kept."""
        return self.broken is None


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
def opened(how: str, folder: Path, seconds: float = SECONDS) -> Iterator[Replay]:
    """Open a replay by its spec: `recorded`, or `command:CMD` with the folder it runs in.

    Args:
        how: The spec.
        folder: The working directory of a command; else not read.
        seconds: The longest time of one answer of a command.

    Raises:
        WrongInput: The spec is none of these, or the command line cannot be read.
        EnvironmentUnusable: The command cannot be started.
    """
    if how == RecordedReplay.name:
        yield RecordedReplay()
    elif how.startswith(_COMMAND):
        with LineProcess(how.removeprefix(_COMMAND), folder, seconds) as process:
            yield CommandReplay(CommandEnvironment(process))
    elif how.startswith(_BROWSER):
        msg = f"{how} was deleted: say '{_INSTEAD} {how.removeprefix(_BROWSER)}'"
        raise WrongInput(msg)
    else:
        msg = f"{how!r} is no way to verify skills: say recorded or command:CMD"
        raise WrongInput(msg)
