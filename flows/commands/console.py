"""How far a long job is, on stderr: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from storage.errors import WrongInput
from storage.root import Root


def folder_at(out: Path) -> Root:
    """Return a folder that results go to, made if it is not there; raises `WrongInput` if it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"--out {out} cannot be made ({error}): give a folder"
        raise WrongInput(msg) from error
    return Root(out)


_SECONDS_BETWEEN_LINES = 5.0
Report = Callable[[int, int], None]


@contextmanager
def progress(verb: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """Give a function to be called with the steps done and their total.

    Without a terminal a job of less than 5 seconds says nothing, a longer one `answered 120 of 1000`.

    Args:
        verb: What has been done to the steps, such as `answered`.
        clock: Seconds that only ever grow.
    """
    if sys.stderr.isatty():
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(verb, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _lines(verb, clock)


def _lines(verb: str, clock: Callable[[], float]) -> Report:
    began = last = clock()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = clock()
        ended = done == total and last > began
        if ended or now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            sys.stderr.write(f"{verb} {done} of {total}\n")
            sys.stderr.flush()

    return report


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
