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


Ask = Callable[..., InProcess]


def skillery(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, to its end."""
    return subprocess.run(
        [*MAIN, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
