"""Replay in a browser: a window's actions are replaced by what a skill does instead, on live pages.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391): the original and the rewritten trajectory must see
the same page after the window and leave the application in the same state, times left out. As in a command's
environment, both are made of the steps that cleaning kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tasks.induce.replay.arguments import arguments_at
from tasks.induce.replay.browser.application import WebApplication
from tasks.induce.replay.browser.application_state import first_difference
from tasks.induce.replay.browser.chromium import Chromium
from tasks.induce.replay.browser.page import Limits, LivePage, PageBroken, opened_page
from tasks.induce.replay.window import Broken, Call, NotTaken, SourceWindow
from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep
from tasks.induce.trajectories.outline import Element, outline_of
from tasks.induce.trajectories.record import Action

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_LOG = logging.getLogger(__name__)
_ID = re.compile(r"\s*\[\S+\] ")
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d)?")


@dataclass(frozen=True, slots=True)
class _LiveOriginal:
    """What a trajectory does here: what is seen before each step and at the end, and the state it leaves.

    A page that is not the same each time is None.
    """

    pages: tuple[str | None, ...]
    state: Any


class BrowserReplay:
    """Replays skills in a web application; an original trajectory is done there twice."""

    name = "browser"

    def __init__(self, chromium: Chromium, application: WebApplication, limits: Limits | None = None) -> None:
        self._chromium, self._application = chromium, application
        self._limits = limits or Limits()
        self._originals: dict[str, _LiveOriginal | str] = {}

    def takes(self, body: Body, window: SourceWindow) -> bool:
        """Tell whether a skill can be replayed in a window here.

        It can if the window is one of pages, and all of its trajectory can be done here and leaves the same
        state each time. Where that is not so, a skill that does the same proves nothing.
        """
        is_of_pages = (
            len(body) > 0 and window.length > 0 and all(step.outline is not None for step in window.steps)
        )
        return is_of_pages and isinstance(self._original(window), _LiveOriginal)

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Return the action by which a rewritten trajectory differs; None if it does the same.

        A difference that is seen only after the skill has the number that follows its last action.

        Raises:
            NotTaken: What comes before the window can no longer be done; no window of its trajectory is taken
                from now on.
            EnvironmentStopped: The browser has ended, or the application does not answer.
        """
        original = self._original(window)
        if isinstance(original, str):
            return Broken(0, original)
        return self._chromium.do(partial(self._rewritten, body, window, call, original))

    def _original(self, window: SourceWindow) -> _LiveOriginal | str:
        """Return what a trajectory does here, or why it proves nothing."""
        if window.trajectory_id not in self._originals:
            self._know(window, self._chromium.do(partial(self._twice, window)))
        return self._originals[window.trajectory_id]

    def _know(self, window: SourceWindow, original: _LiveOriginal | str) -> None:
        self._originals[window.trajectory_id] = original
        if isinstance(original, str):
            _LOG.warning("%s is not replayed in the browser: %s", window.trajectory_id, original)

    def _twice(self, window: SourceWindow, browser: Browser) -> _LiveOriginal | str:
        try:
            one, other = self._done(window, browser), self._done(window, browser)
        except PageBroken as reason:
            return str(reason)
        unlike = first_difference(one.state, other.state)
        if unlike is not None:
            return f"the same actions leave another state at {unlike}"
        return _LiveOriginal(
            tuple(a if a == b else None for a, b in zip(one.pages, other.pages, strict=True)), one.state
        )

    def _done(self, window: SourceWindow, browser: Browser) -> _LiveOriginal:
        """Do an original trajectory."""
        with self._begun(browser) as page:
            pages = [_redone(page, step) for step in window.steps]
            page.settle()
            pages.append(page.look(_seen, _any))
            return _LiveOriginal(tuple(pages), self._application.state())

    @contextmanager
    def _begun(self, browser: Browser) -> Iterator[LivePage]:
        """Reset the application and open its first page."""
        self._application.reset()
        with opened_page(browser, self._application.url, self._limits) as page:
            yield page

    def _rewritten(
        self, body: Body, window: SourceWindow, call: Call, original: _LiveOriginal, browser: Browser
    ) -> Broken | None:
        """Do a trajectory with a skill in place of its window."""
        end = window.start + window.length
        try:
            with self._begun(browser) as page:
                for step in window.steps[: window.start]:
                    _redone(page, step)
                return self._called(page, body, call) or self._ended(
                    page, window.steps[end:], original, end, body
                )
        except PageBroken as reason:
            no_longer = f"what comes before a window can no longer be done: {reason}"
            self._know(window, no_longer)
            raise NotTaken(no_longer) from reason

    def _called(self, page: LivePage, body: Body, call: Call) -> Broken | None:
        """Do a skill's actions."""
        for place, action in enumerate(body):
            if Action(action.name, {}).speaks:
                return Broken(place, f"{action.name} speaks to a person")
            try:
                given = page.look(partial(_arguments, body, place, call), _is_given)
                if isinstance(given, Broken):
                    return given
                page.do(Action(action.name, given))
            except PageBroken as reason:
                return Broken(place, f"{action.name} fails: {reason}")
        return None

    def _ended(
        self, page: LivePage, steps: Sequence[CleanStep], original: _LiveOriginal, end: int, body: Body
    ) -> Broken | None:
        """Do what comes after a skill, and return what is other than in the original."""
        wanted, after = original.pages[end], len(body)
        try:
            if not steps:
                page.settle()
            if wanted is not None and page.look(_seen, wanted.__eq__) != wanted:
                return Broken(after, "another page is seen after it")
            for step in steps:
                _redone(page, step)
            page.settle()
        except PageBroken as reason:
            return Broken(after, f"the trajectory does not go on: {reason}")
        unlike = first_difference(original.state, self._application.state())
        return (
            None if unlike is None else Broken(after, f"the application is left in another state at {unlike}")
        )


def _redone(page: LivePage, step: CleanStep) -> str:
    """Do a recorded step, unless it speaks to a person, and return what was seen before it."""
    if step.action.speaks:
        return page.look(_seen, _any)
    named, element = ELEMENT in step.action.args, step.element
    if named and element is None:
        msg = f"step {step.t} is on an element that its page does not show"
        raise PageBroken(msg)
    seen, found = page.look(partial(_seen_with, element), lambda read: read[1] is not None or not named)
    if named and found is None and element is not None:
        where = f"{element.role} {element.label!r} with the ordinal {element.ordinal}"
        msg = f"step {step.t}: the page has no {where}"
        raise PageBroken(msg)
    page.do(Action(step.action.name, {**step.action.args, ELEMENT: found} if named else step.action.args))
    return seen


def _seen_with(element: Element | None, text: str) -> tuple[str, str | None]:
    """Return what is seen of a page, and the id of an element there."""
    found = outline_of(text).find(element.role, element.label, element.ordinal) if element else None
    return _seen(text), found.element_id if found else None


def _seen(text: str) -> str:
    """Return the elements of an outline, with their states, without ids and times of the day."""
    lines = (line for line in text.split("\n") if _ID.match(line))
    return "\n".join(_CLOCK.sub("time", _ID.sub("", line)) for line in lines)


def _arguments(body: Body, place: int, call: Call, text: str) -> dict[str, Any] | Broken:
    """Return the arguments of a skill's action on a page; actions of pages give no results."""
    return arguments_at(body, place, call, [None] * place, outline_of(text))


def _is_given(found: dict[str, Any] | Broken) -> bool:
    return not isinstance(found, Broken)


def _any(_: object) -> bool:
    return True
