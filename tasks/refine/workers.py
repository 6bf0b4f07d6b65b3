"""Worker processes that refine batches in parallel: refining is Python code and fills one core."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import TypeVar

from storage.errors import StorageError

T = TypeVar("T")
# A process takes 2 s to load what refining needs; from so many batches on they take longer.
WORTH_IT = 4


@contextmanager
def batch_processes(batches: int, workers: int | None) -> Iterator[Executor | None]:
    """Lend processes to run batches in, or None if few batches are done sooner without.

    The processes end when their parent does, in whatever way.

    Args:
        batches: Number of batches to run.
        workers: Number of processes; None: one for each core of this process.
    """
    count = workers or _cores()
    if count < 2 or batches < WORTH_IT:
        yield None
        return
    # Not forked: the fork of a process with threads may wait for a lock for ever.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(min(count, batches), mp_context=context, initializer=_end_with_parent)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def run_in(executor: Executor | None, work: Callable[[], T]) -> T:
    """Return what `work` returns, run by the executor if there is one.

    Raises:
        StorageError: The worker process was killed; other errors are those of `work`.
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
    """End this process when its parent has ended, and no sooner: Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel,), daemon=True).start()


def _wait_and_leave(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
