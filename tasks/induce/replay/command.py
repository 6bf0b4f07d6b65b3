"""Replay in the environment of a command: a window's actions are replaced by what a skill does instead.

After SGDR, section 4.1 (https://arxiv.org/abs/2606.04391): the original and the rewritten trajectory must see
the same after the window and leave the environment the same. Both are made of the steps that cleaning kept: a
step that failed, or that repeats the one before, is no part of what is learned, and one inside the window
would be missing from the rewritten trajectory alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage.errors import EnvironmentUnusable
from tasks.induce.replay.arguments import arguments_at
from tasks.induce.replay.environment import CommandEnvironment, LiveAnswer
from tasks.induce.replay.window import Broken, Call, SourceWindow
from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.cleaning import CleanStep
from tasks.induce.trajectories.record import Action


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
        self._originals: dict[str, _Original] = {}
        self._known: dict[str, bool] = {}
        self._mute: set[str] = set()

    def takes(self, window: SourceWindow) -> bool:
        """Tell whether a window can be replayed here.

        It can if it is one of tools, the environment knows the domain, and it does the window's own actions
        without an error: where those fail, nothing is told about a skill that does the same.
        """
        if window.length < 1 or any(step.outline is not None for step in window.steps):
            return False
        if window.domain not in self._known:
            self._known[window.domain] = self._environment.reset(window.domain).error is None
        if not self._known[window.domain]:
            return False
        own = self._original(window).answers[window.start : window.start + window.length]
        return all(answer is not None and answer.error is None for answer in own)

    def replay(self, body: Body, window: SourceWindow, call: Call) -> Broken | None:
        """Return the action by which a rewritten trajectory differs; None if it does the same.

        A difference that is seen only after the skill has the number that follows its last action.
        """
        original, end = self._original(window), window.start + window.length
        self._environment.reset(window.domain)
        if self._first_other(window.steps[: window.start], original.answers) is not None:
            detail = f"gives other answers to the same actions of {window.trajectory_id} after a reset"
            raise EnvironmentUnusable(self._environment.command, "repeat", detail)
        last = self._do(body, call, original.answers[window.start : end])
        if isinstance(last, Broken):
            return last
        if last != original.answers[end - 1]:
            return Broken(len(body) - 1, f"{body[-1].name} gives another result than the window")
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

    def _do(self, body: Body, call: Call, known: Iterable[LiveAnswer | None]) -> LiveAnswer | Broken | None:
        """Do a skill's actions, and return what the last one gave."""
        usual = {answer.error for answer in known if answer is not None}
        results: list[object] = []
        answer: LiveAnswer | None = None
        for place, action in enumerate(body):
            if Action(action.name, {}).speaks:
                return Broken(place, f"{action.name} speaks to a person")
            given = arguments_at(body, place, call, results, None)
            if isinstance(given, Broken):
                return given
            answer = self._environment.step(Action(action.name, given))
            if answer.error is not None and answer.error not in usual:
                return Broken(place, f"{action.name} fails: {answer.error}")
            results.append(answer.result(action.name))
        return answer
