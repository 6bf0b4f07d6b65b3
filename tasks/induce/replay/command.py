"""Replay in the environment of a command: a window's actions are replaced by what a skill does instead.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391): the original and the rewritten trajectory must see
the same after the window and leave the environment the same. Both are made of the steps that cleaning kept: a
step that failed, or that repeats the one before, is no part of what is learned, and one inside the window
would be missing from the rewritten trajectory alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.errors import EnvironmentUnusable
from tasks.induce.replay.environment import CommandEnvironment, LiveAnswer
from tasks.induce.replay.window import Broken, Call, NotTaken, SourceWindow, arguments_at
from tasks.induce.skills.actions import Body, Result
from tasks.induce.skills.windows import at_path
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


@dataclass(frozen=True, slots=True)
class _Original:
    """What each kept step of a trajectory gave here, None where it was not sent, and the state it left."""

    answers: tuple[LiveAnswer | None, ...]
    digest: str


class CommandReplay:
    """Replays skills in an environment; the actions of an original trajectory are done there once."""

    name = "command"

    def __init__(self, environment: CommandEnvironment) -> None:
        self._environment = environment
        self._pages = PageReplay(environment)
        self._originals: dict[str, _Original] = {}
        self._known: dict[str, LiveAnswer] = {}  # of a domain: what its first reset gave
        self._mute: set[str] = set()

    def takes(self, body: Body, window: SourceWindow) -> bool:
        """Tell whether a skill can be replayed in a window here.

        It can if the environment knows the domain, and does the window's own actions without an error, with
        all in the results that the skill reads in the recorded ones; of pages, if it does the trajectory and
        leaves the same each time. Where that is not so, a skill that does the same proves nothing.
        """
        if (
            window.length < 1
            or not body
            or any(_is_page(step) is not _is_page(window.steps[0]) for step in window.steps)
        ):
            return False
        if window.domain not in self._known:
            self._known[window.domain] = self._environment.reset(window.domain)
        known = self._known[window.domain]
        if known.pages or _is_page(window.steps[0]):
            return known.pages and _is_page(window.steps[0]) and self._pages.takes(window)
        if known.error is not None:
            return False
        own = self._original(window).answers[window.start : window.start + window.length]
        done = all(answer is not None and answer.error is None for answer in own)
        return done and not _cannot_read(body, window, own)

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Return the action by which a rewritten trajectory differs; None if it does the same.

        A difference that is seen only after the skill has the number that follows its last action.

        Raises:
            NotTaken: What comes before a window of pages can no longer be done.
        """
        if _is_page(window.steps[0]):
            return self._pages.replay(body, window, call)
        original, end = self._original(window), window.start + window.length
        self._environment.reset(window.domain)
        if self._first_other(window.steps[: window.start], original.answers) is not None:
            detail = f"gives other answers to the same actions of {window.trajectory_id} after a reset"
            raise EnvironmentUnusable(self._environment.command, "repeat", detail)
        answers = self._do(body, call)
        if isinstance(answers, Broken):
            return answers
        unlike = _unlike(body, answers, window, original.answers[window.start : end])
        if unlike is not None:
            return unlike
        later = self._first_other(window.steps[end:], original.answers[end:])
        if later is not None:
            return Broken(len(body), f"{later.action.name} of step {later.t} gives another result afterwards")
        if self._environment.digest() != original.digest:
            return Broken(len(body), "the environment is left in another state")
        return None

    def _original(self, window: SourceWindow) -> _Original:
        known = self._originals.get(window.trajectory_id)
        if known is None:
            self._environment.reset(window.domain)
            answers = tuple(self._sent(step) for step in window.steps)
            known = self._originals[window.trajectory_id] = _Original(answers, self._environment.digest())
        return known

    def _sent(self, step: CleanStep) -> LiveAnswer | None:
        """Return what a step gives; None for one that speaks to people where the environment has none.

        An environment that refuses such an action once is not asked for it again.
        """
        if step.action.name in self._mute:
            return None
        answer = self._environment.step(step.action)
        if step.action.speaks and answer.error is not None:
            self._mute.add(step.action.name)
            return None
        return answer

    def _first_other(
        self, steps: Iterable[CleanStep], answers: Iterable[LiveAnswer | None]
    ) -> CleanStep | None:
        """Do steps, and return the first that gives another answer than it gave in the original."""
        for step, known in zip(steps, answers, strict=False):
            if known is not None and self._environment.step(step.action) != known:
                return step
        return None

    def _do(self, body: Body, call: Call) -> list[LiveAnswer] | Broken:
        """Do a skill's actions, and return what they gave."""
        answers: list[LiveAnswer] = []
        for place, action in enumerate(body):
            if Action(action.name, {}).speaks:
                return Broken(place, f"{action.name} speaks to a person")
            results = [answer.result(done.name) for done, answer in zip(body, answers, strict=False)]
            given = arguments_at(body, place, call, results, _nowhere)
            if isinstance(given, Broken):
                return given
            answer = self._environment.step(Action(action.name, given))
            if answer.error is not None:
                return Broken(place, f"{action.name} fails: {answer.error}")
            answers.append(answer)
        return answers


def _is_page(step: CleanStep) -> bool:
    return step.outline is not None


def _nowhere(role: str, label: str, ordinal: int) -> None:  # noqa: ARG001 (tools have no elements)
    return None


def _unlike(
    body: Body, answers: Sequence[LiveAnswer], window: SourceWindow, known: Sequence[LiveAnswer | None]
) -> Broken | None:
    """Return what an agent has seen after a window and not after a skill that gave these answers.

    What the agent does later rests on all that it has seen; of what it saw twice once is enough.
    """
    for step, answer in zip(window.inside, known, strict=True):
        if answer not in answers:
            return Broken(len(body), f"what {step.action.name} of step {step.t} gave is not given")
    if answers[-1] != known[-1]:
        return Broken(len(body) - 1, f"{body[-1].name} gives another result than the window's end")
    return None


def _cannot_read(body: Body, window: SourceWindow, known: Sequence[LiveAnswer | None]) -> bool:
    """Tell whether a skill reads what the recorded actions gave, and the same actions here do not."""
    for _, source in (each for action in body for each in action.args):
        if isinstance(source, Result) and 0 <= source.action < len(known):
            step, answer = window.inside[source.action], known[source.action]
            here = answer.result(step.action.name) if answer is not None else None
            if at_path(step.result, source.path) is not None and at_path(here, source.path) is None:
                return True
    return False
