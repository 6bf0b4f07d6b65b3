from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.models.remembered import forgetful


@pytest.fixture(autouse=True)
def worked_out() -> Iterator[None]:
    """No answer of a model is remembered from another test."""
    with forgetful():
        yield
