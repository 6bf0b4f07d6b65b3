"""Tables on the Prefect page of a run, each under a stable key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefect.artifacts import create_table_artifact


def show_table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Leave a table artifact; rows without columns are left out, an empty table says so."""
    table = [dict(row) for row in rows] or [{"note": "nothing to show"}]
    create_table_artifact(key=key, table=table, description=description)


def counted(counts: Mapping[str, Any], name: str = "what", value: str = "count") -> list[dict[str, Any]]:
    """Return counts as rows of a table of two columns."""
    return [{name: key, value: count} for key, count in counts.items()]


def flat(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts with those that stand by reason beside the others, as `fallbacks: budget`."""
    found: dict[str, Any] = {}
    for key, value in counts.items():
        found |= (
            {f"{key}: {name}": n for name, n in value.items()} if isinstance(value, dict) else {key: value}
        )
    return found
