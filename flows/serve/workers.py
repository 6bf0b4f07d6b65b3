"""Worker processes that answer at one address, each with the root open for itself."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from tempfile import TemporaryDirectory
from typing import NoReturn

from flows.commands.open_formats.json_log import set_up_log
from storage.errors import SkilleryError
from storage.folder import threads_of_process

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_YOUNG = 10.0  # seconds; a worker that fails sooner, or before any could answer, would do so for ever
_PATIENCE = 7.0  # seconds in which workers end; the server in each gives its answers 5
Begun = Callable[[], Callable[[], None]]
Answer = Callable[[socket.socket, Begun], None]
Say = Callable[[str], None]
# Not forked: the fork of a process with threads may wait for a lock for ever.
_SPAWN = multiprocessing.get_context("spawn")


def serve_in_workers(
    count: int, answer: Answer, listening: socket.socket, begun: Begun, say: Say
) -> NoReturn:
    """Have worker processes answer, and start again those that end, until Ctrl-C or SIGTERM ends all.

    They share the cores, and what they count is added up (Prometheus' multiprocess mode).

    Args:
        count: Number of processes.
        answer: Answers what comes to a socket until SIGTERM, and calls what it is given once it can; it goes
            to another process.
        listening: The socket, which all take connections from.
        begun: Is called once one of them can answer; what it returns is done at the end.
        say: Is told which worker ended, and how.

    Raises:
        SystemExit: SIGTERM came, or a worker failed as it began.
    """
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads_of_process() // count))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with TemporaryDirectory(prefix="skillery-serve-") as figures, ExitStack() as at_end:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = figures
        at_end.callback(_end_all)
        ready = _SPAWN.Semaphore(0)  # an event's lock would stay with a worker that is killed in it
        start = partial(_started, answer, listening, say, ready)
        workers = {number: start() for number in range(count)}
        began, told = dict.fromkeys(workers, time.monotonic()), False
        while True:
            # Not without end: a signal that comes just before is seen afterwards.
            wait([worker.sentinel for worker in workers.values()], timeout=1 if told else 0.05)
            if not told and ready.acquire(block=False):
                at_end.callback(begun())
                told = True
            for number, worker in workers.items():
                if worker.exitcode is not None:
                    young = not told or time.monotonic() - began[number] < _YOUNG
                    _tell_end(number, worker, say, young=young)
                    workers[number], began[number] = start(), time.monotonic()


def _started(answer: Answer, listening: socket.socket, say: Say, ready: Semaphore) -> BaseProcess:
    worker = _SPAWN.Process(target=_work, args=(answer, listening, say, ready))
    # Before it can tell what to do no signal reaches it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return worker


def _tell_end(number: int, worker: BaseProcess, say: Say, *, young: bool) -> None:
    """Say how a worker ended, and that another comes; end with the code of one that failed as it began."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 (loads what few runs need)

    code = worker.exitcode or 0
    if young:
        if code > 0:
            sys.exit(code)
        time.sleep(1)  # what killed it, as for want of memory, may do so again
    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    say(f"worker {number + 1} (process {worker.pid}) ended ({how}): another one is started")


def _end_all() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    workers, until = multiprocessing.active_children(), time.monotonic() + _PATIENCE
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(max(0, until - time.monotonic()))
        worker.kill()
        worker.join()


class _OneByOne(socket.socket):
    """Takes one connection each time that some wait: the next is for whoever has less to do."""

    _took = False

    def accept(self) -> tuple[socket.socket, object]:
        self._took = not self._took
        if not self._took:
            raise BlockingIOError
        return super().accept()


def _work(answer: Answer, listening: socket.socket, say: Say, ready: Semaphore) -> None:
    """Answer until SIGTERM, or until the parent is gone; a terminal's Ctrl-C is the parent's to pass on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up_log(quiet=False)

    def begun() -> Callable[[], None]:
        ready.release()
        return lambda: None

    try:
        answer(_OneByOne(fileno=listening.detach()), begun)
    except SkilleryError as error:
        say(f"skillery: {error}")
        sys.exit(2)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
