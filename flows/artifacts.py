"""Tables and progress on the Prefect page of a run, each under a stable key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact


def show_table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Leave a table artifact; rows without columns are left out, an empty table says so."""
    table = [dict(row) for row in rows] or [{"note": "nothing to show"}]
    create_table_artifact(key=key, table=table, description=description)


@contextmanager
def batch_progress(stage: str, total: int) -> Iterator[Callable[[], None]]:
    """Show how many of a stage's batches are done; gives a function to be called after each.

    One batch alone shows nothing: it is done or not.

    Args:
        stage: The stage's name; the artifact's key is `skillery-<stage>-progress`.
        total: How many batches there are.
    """
    if total < 2:
        yield lambda: None
        return
    shown: Any = create_progress_artifact(
        progress=0.0, key=f"skillery-{stage}-progress", description=f"Batches of {stage}: {total} in all."
    )
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        update_progress_artifact(artifact_id=shown, progress=100.0 * done / total)

    yield step


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
