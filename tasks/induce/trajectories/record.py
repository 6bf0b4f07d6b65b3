"""Records of trajectories: what an agent was asked, what it saw and did, and whether that was wanted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.errors import WrongInput

# Actions that speak to a person or hand over to one; no skill does so.
_MOST_T = 2**31
SPEAKING = frozenset({"send_msg_to_user", "transfer_to_human_agents", "report_infeasible"})


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent did: the name of an action of its domain, and its arguments."""

    name: str
    args: Mapping[str, Any]

    @property
    def speaks(self) -> bool:
        """Whether it speaks to a person."""
        return self.name in SPEAKING


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what had come since the last action, and the action; `error` is what went wrong, if known."""

    t: int
    observation: str
    action: Action
    error: str | None = None
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A run of an agent.

    `task_id` may be that of several runs; `success` is the verdict of what it was recorded with, None where
    nobody judged; `final` is what was seen after the last action.
    """

    trajectory_id: str
    task_id: str
    domain: str
    task: str
    success: bool | None
    steps: tuple[Step, ...]
    final: str = ""

    def after(self, place: int) -> str:
        """Return what was seen after the step at a place."""
        return self.steps[place + 1].observation if place + 1 < len(self.steps) else self.final


def trajectory_of(row: object) -> Trajectory:
    """Return the trajectory of a row with the fields of `Trajectory` and `Step`; other fields are not read.

    Raises:
        WrongInput: A field is missing, or of another type than it must have.
    """
    if not isinstance(row, Mapping):
        raise WrongInput("a trajectory is a JSON object")
    told = _text(row, "trajectory_id")
    success = row.get("success")
    if success is not None and not isinstance(success, bool):
        raise WrongInput(f"trajectory {told}: success must be true, false or null")
    steps = row.get("steps")
    if not isinstance(steps, list):
        raise WrongInput(f"trajectory {told}: steps must be a list")
    known = tuple(_step(step, told, place) for place, step in enumerate(steps))
    if len({step.t for step in known}) < len(known):
        raise WrongInput(f"trajectory {told}: two steps have the same number `t`")
    return Trajectory(
        told, _text(row, "task_id"), _text(row, "domain"), _text(row, "task", may_be_empty=True), success,
        known, str(row.get("final") or ""),
    )  # fmt: skip


def _step(row: object, told: str, place: int) -> Step:
    action = row.get("action") if isinstance(row, Mapping) else None
    if not isinstance(row, Mapping) or not isinstance(action, Mapping):
        msg = f"trajectory {told}, step {place}: a step is an object with an observation and an action"
        raise WrongInput(msg)
    name, args, observation = action.get("name"), action.get("args", {}), row.get("observation")
    if not isinstance(name, str) or not name.isidentifier() or not isinstance(args, Mapping):
        msg = f"trajectory {told}, step {place}: an action has a name, which is an identifier, and args"
        raise WrongInput(msg)
    if not isinstance(observation, str):
        raise WrongInput(f"trajectory {told}, step {place}: observation must be a text")
    error, at = row.get("error") or None, row.get("t", place)
    if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < _MOST_T:
        msg = f"trajectory {told}, step {place}: t must be a whole number from 0 on, each step's its own"
        raise WrongInput(msg)
    return Step(
        at, observation, Action(name, dict(args)),
        None if error is None else str(error), str(row.get("url") or ""), str(row.get("title") or ""),
    )  # fmt: skip


def _text(row: Mapping[str, Any], name: str, *, may_be_empty: bool = False) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not (value or may_be_empty):
        told = row.get("trajectory_id", "without an id")
        msg = f"trajectory {told}: {name} must be a text{'' if may_be_empty else ' that is not empty'}"
        raise WrongInput(msg)
    return value


def digest_of(row: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a trajectory as it was read; a field that is null counts as missing."""
    held = json.dumps(without_nulls(row), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(held.encode()).hexdigest()


def without_nulls(value: Any) -> Any:  # noqa: ANN401
    """Return a value of JSON without the fields that are null, at any depth."""
    if isinstance(value, Mapping):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
