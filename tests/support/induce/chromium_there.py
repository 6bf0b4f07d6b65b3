"""A Chromium on this machine, without which tests of replay in a browser are skipped."""

from __future__ import annotations

import shutil

import pytest

from tasks.induce.replay.browser.chromium import PROGRAMS


def require_chromium() -> None:
    """Skip a test where there is none."""
    if not any(map(shutil.which, PROGRAMS)):
        pytest.skip(f"there is none of {', '.join(PROGRAMS)} on PATH: apt-get install chromium")
