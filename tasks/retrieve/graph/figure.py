"""Figures: what every picture of a graph shares; matplotlib, which draws them, is loaded only then."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from storage.errors import TerminalError
from tasks.retrieve.graph.layout import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = ("svg", "png", "pdf")
_TITLE_CHARACTER = 0.105  # inches
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "skillery",
    "font.size": 7,
    "font.family": "sans-serif",
}


def rendered(width: float, low: float, high: float, form: str, draw: Callable[[Axes], None]) -> bytes:
    """Return a picture in one of `FORMATS`; the same drawing gives the same bytes.

    Text of an SVG stays text.

    Args:
        width: Inches.
        low: Where the picture ends below, in inches; `y` grows upwards.
        high: Where it ends above.
        form: One of `FORMATS`.
        draw: Draws on axes whose unit is the inch.

    Raises:
        TerminalError: matplotlib is not installed.
    """
    with _matplotlib() as figure_class:
        figure = figure_class(figsize=(width, high - low))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(low, high))
        axes.axis("off")
        draw(axes)
        buffer = io.BytesIO()
        # Without a date, so that a picture changes only with what it shows.
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        figure.savefig(buffer, format=form, dpi=110, metadata=dates)
    return buffer.getvalue()


@contextmanager
def _matplotlib() -> Iterator[type[Figure]]:
    """Yield the class of figures, with our settings, and without warnings of glyphs that the font lacks."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 (seconds; only pictures need it)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        msg = "pictures are drawn by the package matplotlib: pip install '.[draw]' in Skillery's folder"
        raise TerminalError(msg) from error

    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # The program that shows an SVG has its own fonts; other formats print a box for the character.
        warnings.filterwarnings("ignore", message=r"(?s).*[Gg]lyph.*", category=UserWarning)
        yield Figure


def draw_title(axes: Axes, name: str, counts: str, width: float, y: float) -> None:
    """Draw what a picture is of, cut to its width, and what it counts."""
    title = f"{one_line(name, int(width / _TITLE_CHARACTER) - len(counts) - 8)}: {counts}"
    axes.text(0.3, y, title, fontsize=11, fontweight="bold", va="center", parse_math=False)


def draw_legend(axes: Axes, handles: Sequence[Line2D], y: float) -> None:
    """Draw what signs mean, on one line whose upper edge is at `y`."""
    legend = axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.22, y), frameon=False,
        bbox_transform=axes.transData, ncols=len(handles), borderaxespad=0, borderpad=0,
        columnspacing=1.4, handletextpad=0.4,
    )  # fmt: skip
    axes.add_artist(legend)
