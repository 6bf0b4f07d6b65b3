"""Processes that a command started, found by their mark; tests that are slow or ask for Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

_MARK = "MARK_OF_A_TEST"


def marked_environment(mark: str) -> dict[str, str]:
    """Return this process's environment with a mark, and without Prefect's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, _MARK: mark}


def marked(mark: str) -> list[int]:
    """Return the processes with a mark that are not over, in whatever session they are."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            inherited = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if state != "Z" and f"{_MARK}={mark}".encode() in inherited:
            found.append(int(folder.name))
    return found


def slow_but(kept: Collection[object], values: Iterable[object]) -> list[Any]:
    """Return the values as parameters; those that are not kept are slow."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.slow) for value in values]


def require_chromium() -> str:
    """Return the path of the program; skip a test where there is none."""
    from tasks.induce.replay.chromium import PROGRAMS

    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.skip(f"there is none of {', '.join(PROGRAMS)} on PATH: apt-get install chromium")
    return found
