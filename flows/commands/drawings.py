"""Drawings for the command: which forms a file's ending names, and how one is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from storage.errors import WrongInput
from tasks.retrieve.graph.figure import FORMATS

MERMAID = "mmd"
PLAN_FORMS = (*FORMATS, MERMAID)


def form_of(out: Path, forms: Sequence[str]) -> str:
    """Return the form that a file's ending names; raises `WrongInput`, naming all, if it is none of them."""
    form = out.suffix.lower().removeprefix(".")
    if form not in forms:
        msg = f"--out {out}: name a file that ends in {', '.join('.' + f for f in forms)}"
        raise WrongInput(msg)
    return form


def put_drawing(out: Path, drawing: bytes) -> None:
    """Write a drawing, whole or not at all.

    Raises:
        WrongInput: `out` cannot be written.
    """
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_bytes(drawing)
        beside.replace(out)
    except OSError as error:
        msg = f"--out {out} cannot be written ({error.strerror}): name a file in a folder you may write to"
        raise WrongInput(msg) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def put_plan(plan: dict[str, Any], out: Path) -> None:
    """Draw a plan to a file, whose ending names one of `PLAN_FORMS`; Mermaid needs no matplotlib.

    Raises:
        WrongInput: The ending names no form, or `out` cannot be written.
        TerminalError: matplotlib is not installed.
    """
    form = form_of(out, PLAN_FORMS)
    if form == MERMAID:
        from tasks.retrieve.compose.drawing.mermaid import as_mermaid  # noqa: PLC0415

        put_drawing(out, as_mermaid(plan).encode())
    else:
        from tasks.retrieve.compose.drawing.picture import draw_plan  # noqa: PLC0415

        put_drawing(out, draw_plan(plan, form))
