"""How far a long job is, on stderr: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

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
