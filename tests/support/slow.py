"""Marks most values of a parameter as slow tests, so that a few of them stay in the usual run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(kept: Collection[object], values: Iterable[object]) -> list[Any]:
    """Return the values as parameters; those that are not kept are slow."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.slow) for value in values]
