"""Exports for the command; it needs no orchestrator."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from storage.root import Root
from tasks.refine.export import Format, export_corpus
from tasks.refine.policy import LicencePolicy


def export_root(
    root: Root, out: Path, form: str, licences: list[str], policy: dict[str, Any]
) -> dict[str, Any]:
    """Export the corpus of a root and return what the export holds.

    Args:
        root: Where it lies.
        out: A folder, empty or not there yet.
        form: `parquet`, `jsonl` or `folder`.
        licences: Classes that are wanted.
        policy: Which licence is of which class, as the settings have it.

    Raises:
        WrongInput: `out` holds something, or a class is not known.
    """
    report = export_corpus(
        root,
        out,
        format=cast(Format, form),
        licences=licences,
        policy=LicencePolicy(**policy),
        now=datetime.now(UTC),
    )
    return asdict(report)
