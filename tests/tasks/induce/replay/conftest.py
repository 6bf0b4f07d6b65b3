"""A Chromium that tests of replay share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks.induce.replay.browser.chromium import Chromium
from tests.support.chromium_there import require_chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """Start a Chromium once for all tests of a worker."""
    require_chromium()
    with Chromium("127.0.0.1") as browser:
        yield browser
