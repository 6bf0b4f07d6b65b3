"""What `evaluate routing --json` printed, read for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Set = Callable[[dict[str, str]], None]

"""Puts variables into the environment."""


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows of methods by their names."""
    return {row["method"]: row for row in found["methods"]}


def untimed(found: object) -> object:
    """Return an answer without what differs from run to run: times, and what was asked of a server."""
    if isinstance(found, dict):
        differs = ("mean_ms", "median_ms", "p95_ms", "llm", "report")
        return {k: untimed(v) for k, v in found.items() if k not in differs}
    return [untimed(part) for part in found] if isinstance(found, list) else found
