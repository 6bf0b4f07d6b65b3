"""Artifacts: tables and progress on the Prefect page of a run, each under a stable key."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact

from tasks.models.visible import visible

_SECONDS_BETWEEN_LINES = 10.0
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&]")


def show_table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Create a table artifact, its texts visible; an empty table says that it is empty."""
    table = [_visible(dict(row)) for row in rows] or [{"note": "nothing to show"}]
    create_table_artifact(key=key, table=table, description=visible(description))


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of the same keys as a table of Markdown, in which no text is markup."""
    names = list(rows[0]) if rows else []
    cells = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells if names)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    text = "" if value is None else str(value)
    return _MARKUP.sub(r"\\\g<0>", visible(text))


def _visible(value: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {_visible(key): _visible(held) for key, held in value.items()}
    return [_visible(held) for held in value] if isinstance(value, list | tuple) else value


@contextmanager
def batch_progress(stage: str, total: int, tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Show how many of `total` batches are done, and yield a function to call after each batch.

    The artifact's key is `skillery-<stage>-progress`; `tell` gets a line when ten seconds have passed since
    the last one. A single batch shows nothing.
    """
    if total < 2:
        yield lambda: None
        return
    shown: Any = create_progress_artifact(
        progress=0.0, key=f"skillery-{stage}-progress", description=f"Batches of {stage}: {total} in all."
    )
    done, begun = 0, time.monotonic()
    told = begun

    def step() -> None:
        nonlocal done, told
        done, now = done + 1, time.monotonic()
        update_progress_artifact(artifact_id=shown, progress=100.0 * done / total)
        if now - told >= _SECONDS_BETWEEN_LINES and done < total:
            told = now
            tell(f"{stage}: {pace(done, total, now - begun)}")

    yield step


def pace(done: int, total: int, seconds: float) -> str:
    """Return how many batches are done after some seconds, above 0, how many a minute, and the time left."""
    minutes = seconds / done * (total - done) / 60
    left = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    if minutes < 1.5:
        left = f"{60 * minutes:.0f} s"
    return f"{done} of {total} batches, {60 * done / seconds:.3g} a minute, about {left} left"


def counted(counts: Mapping[str, Any], name: str = "what", value: str = "count") -> list[dict[str, Any]]:
    """Return counts as rows of a table of two columns."""
    return [{name: key, value: count} for key, count in counts.items()]


def flat(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts without nesting: counts by reason get keys such as `fallbacks: budget`."""
    found: dict[str, Any] = {}
    for key, value in counts.items():
        nested = isinstance(value, dict)
        found |= {f"{key}: {name}": n for name, n in value.items()} if nested else {key: value}
    return found
