"""How anything is printed for a person: lines, tables, counts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

_WIDE = 100_000  # characters: nothing is that long, and what is piped on must not be cut into lines


def say(text: str, style: str | None = None) -> None:
    """Print a line as it is."""
    _out().print(text, style=style, soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table under its title; None is an empty cell."""
    say(title, style="bold")  # a table breaks its own title
    drawn = Table()
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*("" if cell is None else str(cell) for cell in row))
    _out().print(drawn)


def counts(found: Mapping[str, object]) -> str:
    """Return counts on one line, `none` where there are none."""
    return ", ".join(f"{k} {v}" for k, v in found.items()) or "none"


def _out() -> Console:
    """Return a console that takes text as it is: what is printed was written by third parties."""
    return Console(markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)
