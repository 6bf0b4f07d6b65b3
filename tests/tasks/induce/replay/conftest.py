"""A Chromium that tests of replay share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tasks.induce.replay.browser.chromium import PROGRAMS, Chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """Start a Chromium once for all tests of a worker."""
    if not any(map(shutil.which, PROGRAMS)):
        pytest.skip(f"there is none of {', '.join(PROGRAMS)} on PATH: apt-get install chromium")
    with Chromium("127.0.0.1") as browser:
        yield browser
