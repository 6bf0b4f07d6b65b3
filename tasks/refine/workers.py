"""Worker processes for batches of refine, parse and the routing index: Python code that fills a core each."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar
from weakref import WeakKeyDictionary

from threadpoolctl import threadpool_limits

from storage.errors import StorageError
from storage.folder import cores, threads_of_process

_UNTOLD = {None, 0, -signal.SIGTERM}  # codes that do not say which process broke the pool
_LOOKS = 20
T = TypeVar("T")
U = TypeVar("U")
# A process takes 2 s to load what refining needs; from so many batches on they take longer.
WORTH_IT = 4
_HEAPS = -8  # glibc's M_ARENA_MAX
_PARENTS = (signal.SIGINT, signal.SIGTERM)  # a terminal, or who cancels, sends them to all processes of a run
_workers: WeakKeyDictionary[Executor, set[BaseProcess]] = WeakKeyDictionary()  # those started so far
_ENDED = 75  # the exit code of a worker whose parent told it to end, or is gone


@contextmanager
def batch_processes(batches: int, workers: int | None, least: int = WORTH_IT) -> Iterator[Executor | None]:
    """Lend processes to run batches in, or None if fewer than `least` are done sooner without.

    There are `workers` of them, None: one for each core of this process. They share the cores, end when
    their parent does, in whatever way, and at once if the block is left by an error or Ctrl-C: what batches
    write is written in one step or not at all.
    """
    count = min(workers or cores(), batches)
    if count < 2 or batches < least:
        yield None
        return
    give_memory_back()
    # Not forked: the fork of a process with threads may wait for a lock for ever.
    context = multiprocessing.get_context("spawn")
    stopped, stop = context.Pipe(duplex=False)
    begin = partial(_begin, stopped, max(1, threads_of_process() // count))
    executor = ProcessPoolExecutor(count, mp_context=context, initializer=begin)
    try:
        yield executor
    except BaseException:
        stop.close()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        stop.close()
        stopped.close()


def run_in(executor: Executor | None, work: Callable[[], T]) -> T:
    """Return what `work` returns, run by the executor if there is one.

    Raises:
        StorageError: The worker process was killed; other errors are those of `work`.
    """
    if executor is None:
        return work()
    with _end_is_said(executor):
        return _submitted(executor, work).result()


@contextmanager
def _end_is_said(executor: Executor) -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise StorageError(_how_ended(_exit_codes(executor))) from error


def _exit_codes(executor: Executor) -> set[int | None]:
    """Return the exit codes of an executor's processes; None of one that still runs."""
    workers = _workers.get(executor, set())
    for worker in workers:
        worker.join(1)
    codes = {worker.exitcode for worker in workers}
    # The pool's thread reaps them too: the code of one that it is about to note is not known yet.
    for _ in range(_LOOKS):
        if not codes <= _UNTOLD:
            break
        time.sleep(0.05)
        codes = {worker.exitcode for worker in workers}
    return codes


def _how_ended(codes: Collection[int | None]) -> str:
    """Return how worker processes ended, by their exit codes; the pool ends the others by SIGTERM."""
    if -signal.SIGKILL in codes:
        return (
            "a worker process was killed (SIGKILL), as the system does where memory runs out: "
            "set fewer SKILLERY_WORKERS"
        )
    if _ENDED in codes:
        return "worker processes ended with the run that needed them"
    for code in codes:
        if code is not None and code not in _UNTOLD:
            how = signal.Signals(-code).name if code < 0 else f"code {code}"
            return f"a worker process crashed ({how}): run again, or set SKILLERY_WORKERS=1"
    return "a worker process was ended from outside (SIGTERM): run again"


def run_each(executor: Executor | None, work: Callable[[U], T], items: Iterable[U]) -> Iterator[T]:
    """Yield what `work` returns for each item, in order; few items are held at a time.

    Raises:
        StorageError: As `run_in`.
    """
    if executor is None:
        yield from map(work, items)
        return
    waiting: deque[Future[T]] = deque()
    with _end_is_said(executor):
        for item in items:
            waiting.append(_submitted(executor, partial(work, item)))
            if len(waiting) > 2 * cores():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _submitted(executor: Executor, work: Callable[[], T]) -> Future[T]:
    # This may start a process: no signal of ours reaches it before it can tell what to do.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PARENTS)
    try:
        return executor.submit(work)
    finally:
        _workers.setdefault(executor, set()).update(multiprocessing.active_children())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(stopped: Connection, threads: int) -> None:
    """Take a share of the cores, and end when told or when the parent has ended."""
    for number in _PARENTS:
        signal.signal(number, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    threadpool_limits(threads)  # of what was loaded before
    # By default glibc gives threads heaps of their own and keeps what is freed in them: after 500 documents
    # with vectors a process held 0.6 GB of it.
    _ask_library("mallopt", _HEAPS, 1)
    gc.set_threshold(50_000, 20, 100)  # to look for garbage among documents more often takes 7 % of parse
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel, stopped), daemon=True).start()


def give_memory_back() -> None:
    """Return to the system what this process has freed: others are about to need it."""
    _ask_library("malloc_trim", 0)


def _ask_library(function: str, *arguments: int) -> None:
    """Call a function of the C library if it has it: glibc's are not in all."""
    found = getattr(ctypes.CDLL(None), function, None)
    if found is not None:
        found(*arguments)


def _wait_and_leave(parent: int, stopped: Connection) -> None:
    wait([parent, stopped])
    os._exit(_ENDED)
