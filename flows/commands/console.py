"""The console: tables on stdout, and on stderr the progress of a long job."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.commands.open_formats.json_log import is_json, json_line
from flows.settings import load_settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.models.visible import visible

if TYPE_CHECKING:
    import polars as pl


def folder_at(out: Path, option: str = "--out") -> Root:
    """Return the folder for results, created if needed; raises `WrongInput` if it cannot be created."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongInput(f"{option} {out} cannot be made ({error}): give a folder") from error
    return Root(out)


def drawn(draw: Callable[[Path], object], picture: Path) -> list[Path]:
    """Draw a picture and return its path in a list; without matplotlib say so on stderr and return none."""
    try:
        draw(picture)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"no picture: {error}: pip install '.[draw]' in Skillery's folder\n")
        return []
    return [picture]


def write_report(
    folder: Path, name: str, text: str, tables: Sequence[pl.DataFrame],
    draw: Callable[[Path], object] | None = None, told: Mapping[str, Any] | None = None,
) -> list[str]:  # fmt: skip
    """Write the report of a bench of this name below a folder that is there; return the files.

    They are its tables as Markdown, what was `told` as JSON, if that is given, the run's long tables as
    Parquet, and where it can be drawn a picture.
    """
    from tasks.evaluate.measures.runs import write_run  # noqa: PLC0415 (questions do without)

    files = {form: folder / f"{name}.{form}" for form in ("md", *(["json"] if told else []), "parquet")}
    files["md"].write_text(text, "utf-8")
    if told:
        files["json"].write_text(json.dumps(told, indent=1, ensure_ascii=False), "utf-8")
    write_run(files["parquet"], tables)
    return [str(file) for file in (*files.values(), *(drawn(draw, folder / f"{name}.png") if draw else ()))]


def form_of(out: Path, forms: Sequence[str]) -> str:
    """Return the form that a file's ending names; raises `WrongInput`, naming all, if it is none of them."""
    form = out.suffix.lower().removeprefix(".")
    if form not in forms:
        raise WrongInput(f"--out {out}: name a file that ends in {', '.join('.' + f for f in forms)}")
    return form


def put_drawing(out: Path, drawing: bytes) -> None:
    """Write a drawing, whole or not at all; raises `WrongInput` if `out` cannot be written."""
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


_SECONDS_BETWEEN_LINES = 5.0
Report = Callable[[int, int], None]


@contextmanager
def progress(verb: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """Show progress on stderr, and yield a function to call with the steps done and their total.

    A terminal shows a bar. Elsewhere a job of more than 5 seconds prints a line such as `answered 120 of
    1000` every 5 seconds, where `verb` is `answered`. With the setting `quiet` nothing is shown.
    """
    if load_settings().quiet:
        yield lambda _done, _total: None
    elif sys.stderr.isatty() and not is_json():
        from rich.progress import Progress  # noqa: PLC0415 (most commands show none)

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(verb, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _lines(verb, clock)


@contextmanager
def steps(verb: str, total: int) -> Iterator[Callable[[], None]]:
    """Show progress as `progress` does, and yield a function to call after each of `total` steps."""
    done = count(1)
    with progress(verb) as report:
        yield lambda: report(next(done), total)


def _lines(verb: str, clock: Callable[[], float]) -> Report:
    began = last = clock()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = clock()
        ended = done == total and last > began
        if ended or now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            say_aside(f"{verb} {done} of {total}")
            sys.stderr.flush()

    return report


_WHOLE = ("id", "doc_id", "source", "version")  # columns of what is copied
_WIDE = 100_000  # characters: output that goes into a pipe must not be wrapped


def say(text: str, style: str | None = None, *, indent: int | str = 0, mark: str | None = None) -> None:
    """Print a line as it is, but for control characters; a terminal gets it wrapped between words.

    `style` is one of Rich's; `indent` stands before each line, so many blanks or a text, and `mark`, as wide,
    before the first one instead.
    """
    out, shown = _out(), visible(text)
    margin = " " * indent if isinstance(indent, int) else indent
    lines = wrapped(shown, out.width - len(margin)) if sys.stdout.isatty() else [shown]
    for number, line in enumerate(lines):
        before = margin if number or mark is None else mark
        out.print(f"{before}{line}", style=style, soft_wrap=True)


def say_aside(text: str, level: str = "info") -> None:
    """Print a line on stderr, wrapped as `say` does it, or as a line of a log in JSON."""
    shown = visible(text)
    if is_json():
        sys.stderr.write(f"{json_line(level, shown)}\n")
        return
    lines = wrapped(shown, shutil.get_terminal_size().columns) if sys.stderr.isatty() else [shown]
    sys.stderr.write("\n".join(lines) + "\n")


def wrapped(text: str, width: int) -> list[str]:
    """Return lines of at most so many characters, broken between words alone: an id stays whole."""
    return textwrap.wrap(
        text, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    ) or [""]


def say_text(text: str) -> None:
    """Print a text of third parties: Rich would wrap its lines and expand its tabs.

    A terminal is spared its control characters; a pipe gets what the text holds.
    """
    sys.stdout.write((visible(text, lines=True) if sys.stdout.isatty() else text) + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table under its title; None is an empty cell, a truth value yes or no."""
    from rich.table import Table  # noqa: PLC0415 (as above)

    say(title, style="bold")  # Rich wraps the title of a table
    drawn = Table()
    for column in columns:
        # An id that is folded cannot be copied: the terminal may wrap the row instead.
        whole = column in _WHOLE
        drawn.add_column(column, overflow="ignore" if whole else "fold", no_wrap=whole)
    for row in rows:
        drawn.add_row(*(visible(_cell(cell)) for cell in row))
    _out().print(drawn)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def counts(found: Mapping[str, object]) -> str:
    """Return counts on one line, `none` where there are none."""
    return ", ".join(f"{k} {v}" for k, v in found.items()) or "none"


def minute(time: str | None) -> str | None:
    """Return an ISO time, in UTC as all times are, without seconds."""
    return time and f"{time[:16].replace('T', ' ')} UTC"


def _out() -> Console:
    """Return a console that interprets no markup, because third parties wrote the text."""
    return Console(markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)
