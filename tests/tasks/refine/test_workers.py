from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import pytest

from storage import folder
from storage.errors import StorageError
from tasks.refine import workers as processes
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.workers import WORTH_IT, batch_processes, run_each, run_in
from tests.support.paths import PROJECT
from tests.support.roots.nights import HandSource, Nights, raw, skill


def shelf() -> HandSource:
    lines = " ".join(f"fold {n} times and wait for {n} hours" for n in range(15))
    return HandSource("dir:shelf", skill("a"), skill("b", lines), skill("c", f"{lines} more"), raw("d", b""))


def refined(nights: Nights, executor: Executor | None) -> dict[str, object]:
    nights.crawl(shelf())
    (parts,) = nights.plan().batches
    work = partial(refine_batch, nights.root, parts, run_id=nights.run_id, limits=FilterLimits())
    return run_in(executor, work)


def staged(nights: Nights) -> dict[str, bytes]:
    return {file: nights.root.read(file) for file in nights.root.files("state/staged", ".parquet")}


def test_a_batch_refined_in_another_process_is_what_it_is_here(tmp_path: Path) -> None:
    here, there = Nights(tmp_path / "here"), Nights(tmp_path / "there")
    with batch_processes(WORTH_IT, 2) as executor:
        assert executor is not None
        assert executor.submit(os.getpid).result() != os.getpid()
        assert refined(there, executor) == refined(here, None) == {"kept": 3, "empty": 1, "risks_added": []}
    assert staged(there) == staged(here)
    assert len(staged(here)) == 3


@pytest.mark.parametrize(
    ("batches", "workers"),
    [(WORTH_IT - 1, 8), (1000, 1), (1000, None)],
    ids=["few batches", "one worker", "one core"],
)
def test_where_processes_do_not_pay_batches_run_in_this_one(
    monkeypatch: pytest.MonkeyPatch, batches: int, workers: int | None
) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 1)
    with batch_processes(batches, workers) as executor:
        assert executor is None
    assert run_in(None, os.getpid) == os.getpid()


def test_what_is_run_for_each_item_comes_in_their_order_wherever_it_ran() -> None:
    items = range(40)
    with batch_processes(WORTH_IT, 2) as executor:
        assert executor is not None
        for where in (executor, None):
            assert list(run_each(where, float, items)) == [*map(float, items)]
        made = run_each(executor, float, ["1", "none"])
        assert next(made) == 1
        with pytest.raises(ValueError, match="none"):
            next(made)


def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []
    items = (taken.append(n) or n for n in range(1000))  # type: ignore[func-returns-value]
    with batch_processes(WORTH_IT, 2) as executor:
        assert next(run_each(executor, abs, items)) == 0
    assert len(taken) < 100


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (partial(signal.raise_signal, signal.SIGKILL), r"killed \(SIGKILL\).*memory.*fewer SKILLERY_WORKERS"),
        (partial(signal.raise_signal, signal.SIGABRT), r"crashed \(SIGABRT\)"),
        (partial(os._exit, 3), r"crashed \(code 3\)"),
        (partial(os._exit, processes._ENDED), "ended with the run"),
    ],
)
def test_how_a_process_ended_is_said(end: Callable[[], object], said: str) -> None:
    with batch_processes(WORTH_IT, 2) as executor:
        assert executor is not None
        with pytest.raises(StorageError, match=said):
            run_in(executor, end)


def test_who_ends_a_run_and_all_its_processes_by_sigterm_does_not_end_its_workers_first() -> None:
    with batch_processes(WORTH_IT, 2) as executor:
        assert executor is not None
        assert run_in(executor, partial(signal.raise_signal, signal.SIGTERM)) is None
        assert run_in(executor, os.getpid) != os.getpid()


def test_a_process_ended_while_items_are_still_handed_out_is_said_too() -> None:
    def items() -> Iterator[int]:
        yield signal.SIGKILL
        assert executor is not None
        with contextlib.suppress(StorageError):
            run_in(executor, os.getpid)  # which the killed process' end ends too
        yield 0

    with batch_processes(WORTH_IT, 2) as executor, pytest.raises(StorageError, match="killed"):
        list(run_each(executor, signal.raise_signal, items()))


_LENDS = """
import os, time
from tasks.refine.workers import batch_processes
if __name__ == "__main__":
    with batch_processes(100, 2) as executor:
        print(*{executor.submit(os.getpid).result() for _ in range(4)}, flush=True)
        executor.submit(time.sleep, 600).result()
"""


def test_processes_end_with_the_one_that_started_them_however_it_ends(tmp_path: Path) -> None:
    script = tmp_path / "lends.py"
    script.write_text(_LENDS)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    lender = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment, text=True)
    assert lender.stdout is not None
    lent = [int(pid) for pid in lender.stdout.readline().split()]
    lender.kill()
    lender.wait()
    lender.stdout.close()
    assert lent
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in lent) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in lent if alive(pid)]


def test_processes_end_at_once_when_their_batches_are_given_up() -> None:
    class GivenUpError(Exception):
        """What ends the block, as Ctrl-C does."""

    def give_up() -> None:
        with batch_processes(WORTH_IT, 2) as executor:
            assert executor is not None
            executor.submit(os.getpid).result()
            asleep = executor.submit(time.sleep, 600)
            while not asleep.running():
                time.sleep(0.01)
            raise GivenUpError

    started = time.monotonic()
    with pytest.raises(GivenUpError):
        give_up()
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(("allowed", "each"), [("", "32"), ("6", "3"), ("1", "1")])
def test_processes_share_the_cores_that_the_user_allows(
    monkeypatch: pytest.MonkeyPatch, allowed: str, each: str
) -> None:
    monkeypatch.setattr(folder, "cores", lambda: 64)
    monkeypatch.setenv("OMP_NUM_THREADS", allowed)
    with batch_processes(WORTH_IT, 2) as executor:
        assert executor is not None
        assert executor.submit(os.getenv, "OMP_NUM_THREADS").result() == each


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library counts no heaps")
def test_threads_of_a_process_share_one_heap() -> None:
    with batch_processes(WORTH_IT, 2) as executor:
        assert executor is not None
        assert executor.submit(heaps_of_threads).result() == 1
    assert heaps_of_threads() > 1


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library gives none back")
def test_what_was_freed_is_given_back_before_processes_start() -> None:
    held = [bytearray(1000) for _ in range(200_000)]
    last = held[-1]  # below which the library keeps all that is freed
    held.clear()
    before = resident()
    with batch_processes(WORTH_IT, 2):
        assert resident() < before - 100 * 2**20
    assert len(last) == 1000


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def heaps_of_threads() -> int:
    """Let threads allocate at once, and return how many heaps this process has then."""
    together = threading.Barrier(4)
    threads = [threading.Thread(target=lambda: (bytearray(50_000), together.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    library = ctypes.CDLL(None)
    library.fdopen.restype = ctypes.c_void_p
    with tempfile.TemporaryFile() as told:
        stream = ctypes.c_void_p(library.fdopen(os.dup(told.fileno()), b"w"))
        library.malloc_info(0, stream)
        library.fclose(stream)
        told.seek(0)
        return told.read().count(b"<heap nr=")


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and whose parent is gone may wait to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
