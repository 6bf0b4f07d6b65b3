"""An environment behind a command that speaks JSON lines: reset, step and digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.errors import EnvironmentUnusable
from tasks.induce.replay.line_process import LineProcess
from tasks.induce.trajectories.cleaning import parsed
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action

_SHOWN = 80  # characters of an answer in a message


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """What an action gave: the observation after it, and what went wrong, None if nothing.

    Where there are `pages`, the observation is the page before it: its elements, a line each.
    """

    observation: str
    error: str | None
    pages: bool = False

    def result(self, name: str) -> Any:  # noqa: ANN401
        """Return what the action of that name gave, as cleaning reads it; None where it failed."""
        return None if self.error is not None else parsed(self.observation.removeprefix(f"{name} returned: "))


class CommandEnvironment:
    """An environment that a process holds.

    It is asked `{"op": "reset", "domain"}`, `{"op": "step", "action": {"name", "args"}}` and
    `{"op": "digest"}`, and answers `{"observation", "error"}` and `{"digest"}`. One that answers a reset with
    `"pages": true` too is one of pages: of a step it is told the element by `"on": [role, label, ordinal]`,
    and it is asked `{"op": "page", "until"}` for what is seen, which may be waited for.
    """

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    @property
    def command(self) -> str:
        """The command, as the operator wrote it."""
        return self._process.command

    def reset(self, domain: str) -> LiveAnswer:
        """Begin a domain anew."""
        return self._answer({"op": "reset", "domain": domain})

    def step(self, action: Action, on: Element | None = None) -> LiveAnswer:
        """Do an action, on an element of a page."""
        asked = {"op": "step", "action": {"name": action.name, "args": dict(action.args)}}
        return self._answer({**asked, "on": [on.role, on.label, on.ordinal]} if on else asked)

    def page(self, until: str | None) -> LiveAnswer:
        """Look at a page, until it is the one that is waited for."""
        return self._answer({"op": "page", "until": until})

    def digest(self) -> str:
        """Return what tells the state of the environment from others."""
        asked = {"op": "digest"}
        digest = self._ask(asked).get("digest")
        if not isinstance(digest, str):
            raise self._nonsense(asked, "no digest that is a text")
        return digest

    def _answer(self, asked: Mapping[str, object]) -> LiveAnswer:
        found = self._ask(asked)
        observation, error = found.get("observation"), found.get("error")
        if not isinstance(observation, str) or not isinstance(error, str | None):
            raise self._nonsense(asked, "no observation that is a text with an error that is one or null")
        return LiveAnswer(observation, error, found.get("pages") is True)

    def _ask(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        line = self._process.ask(json.dumps(asked))
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise self._nonsense(asked, f"{line[:_SHOWN]!r}, which is no JSON") from None
        if not isinstance(found, dict):
            raise self._nonsense(asked, f"{line[:_SHOWN]!r}, which is no object")
        return found

    def _nonsense(self, asked: Mapping[str, object], found: str) -> EnvironmentUnusable:
        self._process.close()
        return EnvironmentUnusable(self.command, "answer", f"answered {asked['op']} with {found}")
