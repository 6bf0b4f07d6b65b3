"""The picture of routing: recall over the depth of the ranking, and first hits with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.evaluate.routing.measures import RECALLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stay apart for the colour-blind (Okabe and Ito); beyond them, lines differ in their dashes.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":")


def draw_routing(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the picture into a file of whatever kind its suffix names.

    Args:
        rows: A row a method, as `summarise_method` makes them; copies are folded.
        path: The file.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install "skillery[draw]"`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(12, 5), layout="constrained")
    recalls, firsts = figure.subplots(1, 2)
    for i, row in enumerate(rows):
        colour, dash = _COLOURS[i % len(_COLOURS)], _DASHES[i // len(_COLOURS) % len(_DASHES)]
        shares = [100 * row[f"recall@{k}"] for k in RECALLS]
        recalls.plot(
            RECALLS, shares, color=colour, linestyle=dash, marker="o", markersize=3, label=row["method"]
        )
        _firsts(firsts, row, i, colour)
    recalls.set_xscale("log")
    recalls.set_xlabel("depth k of the ranking")
    recalls.set_ylabel("recall@k (%)")
    recalls.set_ylim(0, 102)
    recalls.grid(visible=True, alpha=0.3)
    recalls.legend(fontsize=8)
    firsts.set_yticks(range(len(rows)), [row["method"] for row in rows])
    firsts.invert_yaxis()
    firsts.set_xlim(0, 100)
    firsts.set_xlabel("hit@1 (dot) and fc@10 (square), % of tasks, 95 % intervals")
    firsts.grid(visible=True, axis="x", alpha=0.3)
    figure.suptitle(f"Routing: {rows[0]['queries']} tasks, copies folded", fontsize=10)
    figure.savefig(path, dpi=150)


def _firsts(axes: Axes, row: dict[str, Any], place: int, colour: str) -> None:
    for measure, mark, offset in (("hit@1", "o", -0.12), ("fc@10", "s", 0.12)):
        low, high = (100 * bound for bound in row["ci95"][measure])
        axes.plot([low, high], [place + offset] * 2, color=colour, linewidth=1.5)
        axes.plot(100 * row[measure], place + offset, marker=mark, color=colour)
