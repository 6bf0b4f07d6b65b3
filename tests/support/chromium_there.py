"""A Chromium on this machine, without which tests in a browser are skipped."""

from __future__ import annotations

import shutil

import pytest

from tasks.induce.replay.chromium import PROGRAMS


def require_chromium() -> str:
    """Return the path of the program; skip a test where there is none."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.skip(f"there is none of {', '.join(PROGRAMS)} on PATH: apt-get install chromium")
    return found
