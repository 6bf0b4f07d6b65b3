"""A Chromium that tests of replay share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tasks.induce.replay.chromium import launched
from tests.support.processes import require_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a Chromium once for the tests of a module."""
    require_chromium()
    with launched("127.0.0.1") as found:
        yield found
