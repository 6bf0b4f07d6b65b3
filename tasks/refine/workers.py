"""Worker processes that refine batches in parallel, because refining is Python and fills one core."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

from storage.errors import StorageError

T = TypeVar("T")
# A process takes two seconds to load what refining needs; so many batches take longer.
WORTH_IT = 4


@contextmanager
def batch_processes(batches: int, workers: int | None) -> Iterator[Executor | None]:
    """Lend processes to run batches in, or None where these few are done sooner without.

    The processes end with the one that lends them, however it ends, once Python has a turn in them. They
    are started anew: what is forked from a process with threads may wait for a lock for ever.

    Args:
        batches: How many are to be run.
        workers: How many processes; None: as many as this one has cores.
    """
    count = workers or _cores()
    if count < 2 or batches < WORTH_IT:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(min(count, batches), mp_context=context, initializer=_end_with_parent)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def run_in(executor: Executor | None, work: Callable[[], T]) -> T:
    """Return what `work` returns, done by the executor where there is one.

    Raises:
        StorageError: The process that did it was ended from outside; other errors are those of `work`.
    """
    if executor is None:
        return work()
    try:
        return executor.submit(work).result()
    except BrokenProcessPool as error:
        msg = "a process that refined was ended from outside (out of memory?): run again, with fewer workers"
        raise StorageError(msg) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """End this process when the one that started it has ended: nobody would wait for what it writes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel,), daemon=True).start()


def _wait_and_leave(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
