"""The picture of a stream: how often a usable skill was offered, along the stream (as SGDR, figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw_stream(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw `along` of rows of `summarise` into a file of the kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install '.[draw]' in Skillery's folder`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        width = 2.2 if number == 0 else 1.2
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(*zip(*row["along"], strict=True), color=colour, linewidth=width, label=row["method"])
    axes.set_xlabel("steps of the stream")
    axes.set_ylabel("mean usable@5 so far")
    axes.set_ylim(0, None)
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=8, ncols=4)
    axes.set_title("Share of steps with a usable skill among the five offered", fontsize=10)
    figure.savefig(path, dpi=150)
