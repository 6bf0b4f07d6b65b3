"""Replay in the environment of a command: a window's actions are replaced by what a skill does instead.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391): the original and the rewritten trajectory must see
the same after the window and leave the environment the same. Both are made of the steps that cleaning kept: a
step that failed, or that repeats the one before, is no part of what is learned, and one inside the window
would be missing from the rewritten trajectory alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from storage.errors import EnvironmentUnusable
from tasks.induce.replay.environment import CommandEnvironment, LiveAnswer
from tasks.induce.replay.window import Broken, Call, Finder, NotTaken, SourceWindow, arguments_at, no_element
from tasks.induce.skills.actions import Body, Result
from tasks.induce.skills.windows import at_path
from tasks.induce.trajectories.cleaning import ELEMENT, CleanStep
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Original:
    """What a trajectory does here, and the state that it leaves.

    Of tools `seen` is what each kept step gave, None where it was not sent; of pages what is seen before each
    step and at the end, None where that is not the same each time.
    """

    seen: tuple[LiveAnswer | str | None, ...]
    digest: str


def done_as_called(
    body: Body, call: Call, find: Finder, do: Callable[[Action, Element | None], LiveAnswer]
) -> list[LiveAnswer] | Broken:
    """Do a skill's actions with what a caller gives, and return what they gave, or what is broken."""
    answers: list[LiveAnswer] = []
    for place, action in enumerate(body):
        if Action(action.name, {}).speaks:
            return Broken(place, f"{action.name} speaks to a person")
        results = [answer.result(done.name) for done, answer in zip(body, answers, strict=False)]
        given = arguments_at(body, place, call, results, find)
        if isinstance(given, Broken):
            return given
        element = given.get(ELEMENT)
        on = element if isinstance(element, Element) else None
        answer = do(Action(action.name, {n: value for n, value in given.items() if value is not on}), on)
        if (error := answer.error) is not None:
            is_lacking = error.startswith("the page has no ")
            return Broken(place, error if is_lacking else f"{action.name} fails: {error}")
        answers.append(answer)
    return answers


class PageReplay:
    """Replays skills in an environment of pages; an original trajectory is done there twice."""

    def __init__(self, environment: CommandEnvironment) -> None:
        self._environment = environment
        self._originals: dict[str, _Original | str] = {}  # or why it proves nothing

    def takes(self, window: SourceWindow) -> bool:
        """Tell whether all of a window's trajectory can be done here, and leaves the same state each time."""
        return isinstance(self._original(window), _Original)

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Replay as `CommandReplay.replay`; after `NotTaken` no window of the trajectory is taken."""
        original, end = self._original(window), window.start + window.length
        if isinstance(original, str):
            return Broken(0, original)
        try:
            _seen(self._environment.reset(window.domain))
            for step in window.steps[: window.start]:
                self._redone(step)
        except NotTaken as reason:
            no_longer = f"what comes before a window can no longer be done: {reason}"
            self._give_up(window, no_longer)
            raise NotTaken(no_longer) from reason
        # What the skill finds, the live page is asked for; its actions give no results.
        done = done_as_called(body, call, lambda *on: Element("", *on), self._environment.step)
        return done if isinstance(done, Broken) else self._ended(window.steps[end:], original, end, len(body))

    def _original(self, window: SourceWindow) -> _Original | str:
        """Return what a trajectory does here, or why it proves nothing."""
        if window.trajectory_id not in self._originals:
            try:
                (pages, digest), (others, other) = self._whole(window), self._whole(window)
                if digest != other:
                    raise NotTaken("the same actions leave another state")
                same = tuple(a if a == b else None for a, b in zip(pages, others, strict=True))
                self._originals[window.trajectory_id] = _Original(same, digest)
            except NotTaken as reason:
                self._give_up(window, str(reason))
        return self._originals[window.trajectory_id]

    def _give_up(self, window: SourceWindow, reason: str) -> None:
        self._originals[window.trajectory_id] = reason
        _LOG.warning("%s is not replayed in live pages: %s", window.trajectory_id, reason)

    def _whole(self, window: SourceWindow) -> tuple[list[str], str]:
        _seen(self._environment.reset(window.domain))
        pages = [*(self._redone(step) for step in window.steps), self._page()]
        return pages, self._environment.digest()

    def _page(self, until: str | None = None) -> str:
        """Return what is seen once the page is quiet, or is the one waited for."""
        return _seen(self._environment.page(until))

    def _redone(self, step: CleanStep) -> str:
        """Do a recorded step, unless it speaks to a person, and return what was seen before it."""
        if step.action.speaks:
            return self._page()
        named = ELEMENT in step.action.args
        if named and step.element is None:
            raise NotTaken(f"step {step.t} is on an element that its page does not show")
        args = {name: value for name, value in step.action.args.items() if name != ELEMENT}
        answer = self._environment.step(Action(step.action.name, args), step.element if named else None)
        return _seen(answer, f"step {step.t}: ")

    def _ended(self, steps: Sequence[CleanStep], original: _Original, end: int, after: int) -> Broken | None:
        """Do what comes after a skill, and return what is other than in the original."""
        page = original.seen[end]
        wanted = page if isinstance(page, str) else None
        try:
            if self._page(wanted) != wanted and wanted is not None:
                return Broken(after, "another page is seen after it")
            for step in steps:
                self._redone(step)
            if steps:
                self._page()
        except NotTaken as reason:
            return Broken(after, f"the trajectory does not go on: {reason}")
        is_same = self._environment.digest() == original.digest
        return None if is_same else Broken(after, "the application is left in another state")


def _seen(answer: LiveAnswer, where: str = "") -> str:
    if answer.error is not None:
        raise NotTaken(where + answer.error)
    return answer.observation


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
        kinds = {_is_page(step) for step in window.steps}
        if window.length < 1 or not body or len(kinds) > 1:
            return False
        if window.domain not in self._known:
            self._known[window.domain] = self._environment.reset(window.domain)
        known, (is_page,) = self._known[window.domain], kinds
        if known.pages or is_page:
            return known.pages and is_page and self._pages.takes(window)
        if known.error is not None:
            return False
        own = self._given(window)
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
        if self._first_other(window.steps[: window.start], original.seen) is not None:
            detail = f"gives other answers to the same actions of {window.trajectory_id} after a reset"
            raise EnvironmentUnusable(self._environment.command, "repeat", detail)
        answers = done_as_called(body, call, no_element, lambda action, _: self._environment.step(action))
        if isinstance(answers, Broken):
            return answers
        unlike = _unlike(body, answers, window, self._given(window))
        if unlike is not None:
            return unlike
        later = self._first_other(window.steps[end:], original.seen[end:])
        if later is not None:
            return Broken(len(body), f"{later.action.name} of step {later.t} gives another result afterwards")
        is_same = self._environment.digest() == original.digest
        return None if is_same else Broken(len(body), "the environment is left in another state")

    def _original(self, window: SourceWindow) -> _Original:
        known = self._originals.get(window.trajectory_id)
        if known is None:
            self._environment.reset(window.domain)
            answers = tuple(self._sent(step) for step in window.steps)
            known = self._originals[window.trajectory_id] = _Original(answers, self._environment.digest())
        return known

    def _given(self, window: SourceWindow) -> list[LiveAnswer | None]:
        own = self._original(window).seen[window.start : window.start + window.length]
        return [answer if isinstance(answer, LiveAnswer) else None for answer in own]

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

    def _first_other(self, steps: Iterable[CleanStep], answers: Iterable[object]) -> CleanStep | None:
        """Do steps, and return the first that gives another answer than it gave in the original."""
        for step, known in zip(steps, answers, strict=False):
            if known is not None and self._environment.step(step.action) != known:
                return step
        return None


def _is_page(step: CleanStep) -> bool:
    return step.outline is not None


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
