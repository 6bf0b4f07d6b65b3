"""A task of agents: a folder with an instruction, and a file that names its environment and its check."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from storage.errors import WrongInput
from storage.jsonl import json_value
from tasks.induce.replay.environment import CommandEnvironment, LineProcess
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action

EXAMPLE = "example"  # names the tasks that come with Skillery
_TASK, _INSTRUCTION = "task.json", "instruction.md"
_ONE_DOMAIN = "tasks"


class ReferenceAction(BaseModel):
    """An action of those that leave an environment as it should be; `on` is role, label and ordinal."""

    name: str
    args: dict[str, Any] = {}
    on: tuple[str, str, int] | None = None


class TaskFile(BaseModel):
    """What `task.json` of a task says; that of the folder of all tasks says what they share."""

    environment: str  # a command line; `{python}` stands for the Python that runs Skillery
    folder: str = "."  # where it runs, seen from the task's folder
    domain: str = ""  # what it is asked to reset
    actions: dict[str, str] = {}  # by `name(arguments)`: what it does
    # Actions that leave what should be left; None: the environment tells the score.
    check: list[ReferenceAction] | None = None
    skills: list[str] = []  # ids of skills that its author finds it needs


class AgentTask(NamedTuple):
    """A task: what is asked, where it is done, and a digest of its files."""

    task_id: str
    instruction: str
    folder: Path
    told: TaskFile
    digest: str

    @property
    def domain(self) -> str:
        """What its trajectories are of: the environment's domain; tasks that name none are of one."""
        return self.told.domain or _ONE_DOMAIN

    def opened(
        self, seconds: float, left: Callable[[], float] = lambda: float("inf")
    ) -> AbstractContextManager[LineProcess]:
        """Start its environment, which answers each line in time; arguments and errors of `LineProcess`."""
        command = self.told.environment.replace("{python}", shlex.quote(sys.executable))
        return LineProcess(command, self.folder / self.told.folder, seconds, left=left)

    def score(self, environment: CommandEnvironment) -> float:
        """Return how far it is done, from 0 to 1: the environment's word, or the reference's.

        Raises:
            WrongInput: A reference action fails, so that doing nothing would be right.
        """
        if self.told.check is None:
            return environment.score()
        left = environment.digest()
        done = environment.reset(self.told.domain)
        for number, one in enumerate(self.told.check, start=1):
            if done.error is None:
                done = environment.step(Action(one.name, one.args), Element("", *one.on) if one.on else None)
            if done.error is not None:
                raise WrongInput(f"{self.folder / _TASK}: check, action {number}: {done.error}: mend it")
        return float(environment.digest() == left)


def read_agent_tasks(given: str) -> list[AgentTask]:
    """Return the tasks of a folder by name, or those that come with Skillery.

    Raises:
        WrongInput: There is no such folder, it holds no task, or a file cannot be used.
    """
    packaged = Path(str(resources.files("tasks.evaluate").joinpath("data/agents")))
    folder = packaged if given == EXAMPLE else Path(given)
    shared = _object(folder)
    found = [_task(one.parent.resolve(), shared) for one in sorted(folder.glob(f"*/{_INSTRUCTION}"))]
    if not found:
        msg = f"{folder}: holds no folder with {_INSTRUCTION}: give a folder of tasks, or say {EXAMPLE}"
        raise WrongInput(msg)
    return found


def _task(folder: Path, shared: dict[str, Any]) -> AgentTask:
    files = sorted(one for one in folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    held = [(str(one.relative_to(folder)), hashlib.sha256(one.read_bytes()).hexdigest()) for one in files]
    digest = hashlib.sha256(repr((held, sorted(shared.items()))).encode()).hexdigest()
    try:
        told = TaskFile.model_validate({**shared, **_object(folder)})
    except ValidationError as error:
        first = error.errors()[0]
        raise WrongInput(f"{folder / _TASK}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return AgentTask(folder.name, _text(folder / _INSTRUCTION), folder, told, digest)


def _object(folder: Path) -> dict[str, Any]:
    file = folder / _TASK
    found = json_value(_text(file), str(file), "{environment, domain, actions, ...}") if file.exists() else {}
    if not isinstance(found, dict):
        raise WrongInput(f"{file} must hold an object")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongInput(f"{path} cannot be read ({error}): give a file of UTF-8") from error
