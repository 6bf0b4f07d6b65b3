"""Replay in live pages: a window's actions are replaced by what a skill does instead, in a web application.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391): the original and the rewritten trajectory must see
the same page after the window and leave the application in the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.induce.replay.arguments import arguments_at
from tasks.induce.replay.environment import CommandEnvironment
from tasks.induce.replay.window import Broken, Call, NotTaken, SourceWindow
from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LiveOriginal:
    """What a trajectory does here: what is seen before each step and at the end, and the state it leaves.

    A page that is not the same each time is None.
    """

    pages: tuple[str | None, ...]
    digest: str


class PageReplay:
    """Replays skills in an environment of pages; an original trajectory is done there twice."""

    def __init__(self, environment: CommandEnvironment) -> None:
        self._environment = environment
        self._originals: dict[str, _LiveOriginal | str] = {}

    def takes(self, window: SourceWindow) -> bool:
        """Tell whether all of a window's trajectory can be done here, and leaves the same state each time."""
        return isinstance(self._original(window), _LiveOriginal)

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Return the action by which a rewritten trajectory differs; None if it does the same.

        A difference that is seen only after the skill has the number that follows its last action.

        Raises:
            NotTaken: What comes before the window can no longer be done; no window of its trajectory is taken
                from now on.
        """
        original = self._original(window)
        if isinstance(original, str):
            return Broken(0, original)
        try:
            self._begin(window.domain)
            for step in window.steps[: window.start]:
                self._redone(step)
        except NotTaken as reason:
            no_longer = f"what comes before a window can no longer be done: {reason}"
            self._know(window, no_longer)
            raise NotTaken(no_longer) from reason
        end = window.start + window.length
        return self._called(body, call) or self._ended(window.steps[end:], original, end, len(body))

    def _original(self, window: SourceWindow) -> _LiveOriginal | str:
        """Return what a trajectory does here, or why it proves nothing."""
        if window.trajectory_id not in self._originals:
            try:
                one, other = self._done(window), self._done(window)
                same = tuple(a if a == b else None for a, b in zip(one.pages, other.pages, strict=True))
                original: _LiveOriginal | str = _LiveOriginal(same, one.digest)
                if one.digest != other.digest:
                    original = "the same actions leave another state"
            except NotTaken as reason:
                original = str(reason)
            self._know(window, original)
        return self._originals[window.trajectory_id]

    def _know(self, window: SourceWindow, original: _LiveOriginal | str) -> None:
        self._originals[window.trajectory_id] = original
        if isinstance(original, str):
            _LOG.warning("%s is not replayed in live pages: %s", window.trajectory_id, original)

    def _done(self, window: SourceWindow) -> _LiveOriginal:
        """Do an original trajectory."""
        self._begin(window.domain)
        pages = [self._redone(step) for step in window.steps]
        return _LiveOriginal((*pages, self._page()), self._environment.digest())

    def _begin(self, domain: str) -> None:
        if (error := self._environment.reset(domain).error) is not None:
            raise NotTaken(error)

    def _page(self, until: str | None = None) -> str:
        """Return what is seen once the page is quiet, or is the one waited for."""
        answer = self._environment.page(until)
        if answer.error is not None:
            raise NotTaken(answer.error)
        return answer.observation

    def _redone(self, step: CleanStep) -> str:
        """Do a recorded step, unless it speaks to a person, and return what was seen before it."""
        if step.action.speaks:
            return self._page()
        named = ELEMENT in step.action.args
        if named and step.element is None:
            msg = f"step {step.t} is on an element that its page does not show"
            raise NotTaken(msg)
        args = {name: value for name, value in step.action.args.items() if name != ELEMENT}
        on = step.element if named else None
        answer = self._environment.step(Action(step.action.name, args), on)
        if answer.error is not None:
            msg = f"step {step.t}: {answer.error}"
            raise NotTaken(msg)
        return answer.observation

    def _called(self, body: Body, call: Call) -> Broken | None:
        """Do a skill's actions; those of pages give no results."""
        for place, action in enumerate(body):
            if Action(action.name, {}).speaks:
                return Broken(place, f"{action.name} speaks to a person")
            given = arguments_at(body, place, call, [None] * place, _wherever)
            if isinstance(given, Broken):
                return given
            element = given.get(ELEMENT)
            on = element if isinstance(element, Element) else None
            args = {name: value for name, value in given.items() if value is not on}
            error = self._environment.step(Action(action.name, args), on).error
            if error is not None:
                return Broken(
                    place, error if error.startswith("the page has no ") else f"{action.name} fails: {error}"
                )
        return None

    def _ended(
        self, steps: Sequence[CleanStep], original: _LiveOriginal, end: int, after: int
    ) -> Broken | None:
        """Do what comes after a skill, and return what is other than in the original."""
        wanted = original.pages[end]
        try:
            if self._page(wanted) != wanted and wanted is not None:
                return Broken(after, "another page is seen after it")
            for step in steps:
                self._redone(step)
            if steps:
                self._page()
        except NotTaken as reason:
            return Broken(after, f"the trajectory does not go on: {reason}")
        if self._environment.digest() != original.digest:
            return Broken(after, "the application is left in another state")
        return None


def _wherever(role: str, label: str, ordinal: int) -> Element:
    """Return an element that the live page will be asked for."""
    return Element("", role, label, ordinal)
