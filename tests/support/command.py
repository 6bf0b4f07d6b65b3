"""What tests that run the command share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MAIN = [sys.executable, "-c", "from flows.cli.main import main; main()"]


class InProcess(NamedTuple):
    """What the command printed inside this process, and what it ended with."""

    code: object
    stdout: str
    stderr: str


class Ask:
    """Runs the command by `run`, inside this process, where nothing depends on its being one of its own."""

    def __init__(self, run: Callable[..., InProcess]) -> None:
        self._run = run

    def __call__(self, *arguments: str) -> InProcess:
        return self._run(*arguments)

    def told(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Return the object that the command prints with `--json`."""
        done = self(*arguments, "--json")
        assert done.code == code, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def refused(self, *arguments: str) -> str:
        """Return the one line with which the command refuses wrong use."""
        done = self(*arguments)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
        return done.stderr


def skillery(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, to its end."""
    return subprocess.run(
        [*MAIN, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
