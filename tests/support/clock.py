"""Clock of tests: the processor time of one thread, tried again, so that a busy machine fails no test."""

from __future__ import annotations

import time
from collections.abc import Callable

_ENOUGH = 0.05  # seconds: what takes less is not compared
_GROWTH, _TRIES = 10, 5  # what is linear takes four times as long, what is quadratic sixteen times


def seconds(work: Callable[[], object], tries: int = 1) -> float:
    """Return the least processor time that work takes in so many tries."""
    took = []
    for _ in range(tries):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


def takes_less(most: float, work: Callable[[], object]) -> bool:
    """Tell whether work takes less than so many seconds, in one of three tries."""
    return any(seconds(work) < most for _ in range(3))


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Tell whether work of four times a size takes not much more than four times as long."""
    return any(
        seconds(lambda: work(4 * size)) < max(_GROWTH * seconds(lambda: work(size), tries=2), _ENOUGH)
        for _ in range(_TRIES)
    )
