"""Prefect repeats a task that failed for a transient reason, by the one retry policy, and no other."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from flows.server.temporary import as_functions
from flows.settings import load_settings
from storage.errors import StorageError, TransientError, Unreachable, WrongInput
from storage.root import Root
from tasks.models.retry import RetryPolicy, task_retries
from tests.support.paths import PROJECT
from tests.support.prefect_page import artifact
from tests.support.roots.built import built_at, lowest_cosine
from tests.support.roots.many_skills import many_skills
from tests.support.s3_server import BUCKET, machine_at


def _ran(count: int, *, in_turn: bool = False) -> list[tuple[int, int, int]]:
    """Run a flow of batches; return of each its number, and the process and thread it ran in."""
    from prefect import flow, task

    from flows.runners import run_batches

    @task
    def batch(number: int, after: int) -> tuple[int, int, int]:
        return number, os.getpid(), threading.get_ident()

    @flow
    def batches() -> list[tuple[int, int, int]]:
        done: list[tuple[int, int, int]] = []
        calls = ((batch, {"number": n, "after": len(done)}) for n in range(count))
        for result in run_batches("numbers", calls, count, in_turn=in_turn):
            done.append(result)  # noqa: PERF402 (each call is to see what was done before it)
        return done

    return batches()


def test_batches_run_in_this_thread_by_default_and_in_order(prefect_server: str) -> None:
    found = _ran(3)
    assert found == [(n, os.getpid(), threading.get_ident()) for n in range(3)]
    shown = artifact(prefect_server, "skillery-numbers-progress")
    assert (shown["type"], float(shown["data"])) == ("progress", 100.0)


@pytest.mark.parametrize(("in_turn", "alone"), [(False, False), (True, False), (False, True)])
def test_with_workers_they_run_on_threads_and_keep_their_order(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch, *, in_turn: bool, alone: bool
) -> None:
    monkeypatch.setenv("SKILLERY_TASK_WORKERS", "2")
    with as_functions() if alone else nullcontext():
        found = _ran(4, in_turn=in_turn)
    assert [number for number, *_ in found] == [0, 1, 2, 3]
    assert {process for _, process, _ in found} == {os.getpid()}
    assert threading.get_ident() not in {thread for *_, thread in found}


def test_batches_that_wait_their_turn_are_not_begun_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import flow, task

    from flows.runners import run_batches

    monkeypatch.setenv("SKILLERY_TASK_WORKERS", "2")
    begun = list[int]()
    failed = threading.Event()

    @task
    def batch(number: int) -> None:
        begun.append(number)
        if number == 0:
            failed.set()
            raise KeyboardInterrupt
        failed.wait()
        time.sleep(0.05)

    @flow
    def batches() -> None:
        list(run_batches("numbers", ((batch, {"number": n}) for n in range(40)), 40))

    with as_functions(), pytest.raises(KeyboardInterrupt):
        batches()
    assert len(begun) < 20


def test_flows_are_functions_only_where_that_was_said(prefect_server: str) -> None:
    """Two commands of one process overlap, while others of it run flows of their own."""
    del prefect_server  # as the settings name it
    from prefect import flow
    from prefect.context import FlowRunContext

    first, second = threading.Event(), threading.Event()

    @flow
    def on_page() -> bool:
        return FlowRunContext.get() is not None

    def command(begins: threading.Event, ends: threading.Event) -> bool:
        with as_functions():
            begins.set()
            ends.wait(10)
            return on_page()

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(command, threading.Event(), first)
        two = pool.submit(command, first, second)
        found = [one.result(), on_page()]
        second.set()
        assert [*found, two.result(), on_page()] == [False, True, False, True]


def test_a_runner_of_no_kind_is_refused_and_one_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows.runners import require_runner

    monkeypatch.setenv("SKILLERY_TASK_RUNNER", "ray")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(WrongInput, match=r"SKILLERY_TASK_RUNNER=ray needs .* pip install '\.\[ray\]'"):
        require_runner(load_settings())
    monkeypatch.setenv("SKILLERY_TASK_RUNNER", "slurm")
    with pytest.raises(WrongInput, match="SKILLERY_TASK_RUNNER='slurm'"):
        load_settings()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "ray://you:secret@127.0.0.1:9", "127.0.0.1:9"])
def test_a_cluster_that_does_not_answer_is_named_with_its_setting(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    import dask

    from flows import runners

    runner = "dask" if address.startswith("tcp") else "ray"
    monkeypatch.setitem(runners._PACKAGES, "ray", "prefect")  # Ray need not be there
    monkeypatch.setenv("SKILLERY_TASK_RUNNER", runner)
    monkeypatch.setenv("SKILLERY_TASK_RUNNER_ADDRESS", address)
    shown = re.escape(address.replace("you:secret@", ""))
    said = f"SKILLERY_TASK_RUNNER_ADDRESS={shown}: no {runner} cluster answers"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(TransientError, match=said),
    ):
        _ran(1)


@pytest.fixture
def market(tmp_path: Path) -> str:
    for name, text in many_skills(30).items():
        (tmp_path / "market" / name).mkdir(parents=True)
        (tmp_path / "market" / name / "SKILL.md").write_text(text, "utf-8")
    return f"dir:{tmp_path / 'market'}"


@pytest.fixture
def in_bucket(s3: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**s3, "XDG_CACHE_HOME": machine_at(tmp_path / "copies")}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/beyond"


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def switch() -> None:
        monkeypatch.setenv("SKILLERY_TASK_RUNNER", "dask")
        monkeypatch.setenv("SKILLERY_TASK_WORKERS", "2")

    return switch


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Dask's event loop, at its end
def test_one_process_dask_and_a_bucket_build_the_same(
    prefect_server: str, root: str, market: str, in_bucket: str, dask: Callable[[], None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from flows.evaluate import evaluate
    from flows.nightly import nightly

    monkeypatch.setattr("tasks.parse.corpus.DOCUMENTS_PER_BATCH", 8)
    bucket = Root(in_bucket)
    for other in (bucket.folder, tmp_path / "dask"):
        (other / "models").parent.mkdir(parents=True, exist_ok=True)
        (other / "models").symlink_to(Path(root) / "models")
    nightly(root, [market])
    nightly(in_bucket, [market])
    dask()
    nightly(str(tmp_path / "dask"), [market])
    evaluate(str(tmp_path / "dask"))
    one = built_at(Root(root))
    assert len(one.skills) == 30
    assert lowest_cosine(one, built_at(Root(tmp_path / "dask"))) >= 0.9999
    assert lowest_cosine(one, built_at(bucket)) >= 0.9999


QUICK = RetryPolicy(tries=3, wait_min=0.01, wait_max=0.02)


@pytest.mark.parametrize(
    ("errors", "tries"),
    [
        ([Unreachable("the bucket does not answer")], 2),
        ([Unreachable("no"), Unreachable("no"), Unreachable("no")], 3),
        ([StorageError("documents/part-00.parquet is damaged")], 1),
        ([ZeroDivisionError()], 1),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_what_is_transient_is_tried_again(
    prefect_server: str, errors: list[Exception], tries: int, *, alone: bool
) -> None:
    from prefect import flow, task
    from prefect.context import FlowRunContext

    left, tried = list(errors), list[int]()

    @task(**task_retries(QUICK))
    def fetch() -> str:
        tried.append(len(left))
        assert (FlowRunContext.get() is None) == alone
        if left:
            raise left.pop(0)
        return "fetched"

    @flow
    def night() -> str:
        return fetch()

    run: Callable[[], str] = night
    ends = nullcontext() if tries > len(errors) else pytest.raises(type(errors[-1]))
    with as_functions() if alone else nullcontext(), ends:
        assert run() == "fetched"
    assert len(tried) == tries


def test_the_waits_are_those_of_the_policy() -> None:
    given = task_retries(RetryPolicy(tries=4, wait_min=1, wait_max=5))
    assert (given["retries"], given["retry_delay_seconds"]) == (3, [1.5, 3.0, 5])


ASKING = "crawl-source", "refresh-source", "prepare-encoder", "parse-batch", "embed-batch", "build-tables"


def test_tasks_that_ask_the_network_or_a_model_are_among_them() -> None:
    shells = "".join(file.read_text() for file in PROJECT.glob("tasks/*/shells.py"))
    for name in ASKING:
        assert re.search(rf'@task\(\s*name="{name}"[^@]*?task_retries\(\)', shells), name
