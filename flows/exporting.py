"""Exports for the command; it needs no orchestrator."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from storage.root import Root
from tasks.refine.export import Format, export_corpus


def export_root(root: Root, out: Path, form: str, licences: list[str]) -> dict[str, Any]:
    """Export the corpus of a root and return what the export holds.

    Raises:
        WrongInput: `out` holds something, or a class is not known.
    """
    report = export_corpus(root, out, format=cast(Format, form), licences=licences, now=datetime.now(UTC))
    return asdict(report)
