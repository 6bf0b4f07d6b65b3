"""Task runners: the batches of a stage run in this process, on Dask or on Ray, as the settings say."""

from __future__ import annotations

import importlib.util
import logging
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from prefect import Task
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.commands.open_formats.lineage import require_openlineage
from flows.run_page import batch_progress, on_page
from flows.settings import Settings, load_settings
from storage.errors import TransientError, WrongInput
from storage.folder import cores
from tasks.refine.workers import batch_processes

_PACKAGES = {"dask": "prefect_dask", "ray": "prefect_ray"}
_PATIENCE = 10.0  # seconds
Call = tuple[Task[..., Any], Mapping[str, Any]]
_Runs: TypeAlias = TaskRunner[Any] | ThreadPoolExecutor  # the latter where a flow is a function


def require_runner(settings: Settings) -> None:
    """Raise `WrongInput` if the runner or the lineage of the settings needs an extra that is missing."""
    require_openlineage()
    package = _PACKAGES.get(settings.task_runner)
    if package is not None and importlib.util.find_spec(package) is None:
        name = settings.task_runner
        msg = f"SKILLERY_TASK_RUNNER={name} needs an extra: pip install '.[{name}]' in Skillery's folder"
        raise WrongInput(msg)


def runs_elsewhere() -> bool:
    """Return whether batches run in processes of a Dask or Ray cluster."""
    return load_settings().task_runner != "threads"


def batches_at_once(total: int, questions: int) -> int:
    """Return how many of `total` batches that ask an LLM run at once in this process, at least 1.

    It is 1 where they are more than the `questions` under way at once, which batches share.
    """
    settings = load_settings()
    workers = 1 if runs_elsewhere() else settings.task_workers or cores()
    at_once = max(1, min(total, workers))
    return at_once if at_once <= questions else 1


@contextmanager
def shared_runner() -> Iterator[None]:
    """Share one task runner between all stages inside; a cluster starts once, with the first batch.

    Raises `WrongInput` as `require_runner`.
    """
    with ExitStack() as stack:
        if _shared.get() is None:
            token = _shared.set(stack.enter_context(_opened(load_settings())))
            stack.callback(_shared.reset, token)
        yield


def run_batches(
    stage: str, calls: Iterable[Call], total: int, *, in_turn: bool = False, waiting: bool = False,
    apart: int | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Run a stage's batches inside a flow, and yield their results in order.

    Args:
        stage: The stage's name on the page of the run.
        calls: Tasks with their parameters, which must be small and picklable.
        total: The number of calls.
        in_turn: Whether each call starts only after the result of the one before.
        waiting: Whether the calls mostly wait for a server: threads gain although they share the cores.
        apart: From so many calls on they run in processes of this machine, unless a cluster runs them: the
            tasks take an `executor`. None: in this process.

    Raises:
        WrongInput: As `require_runner`.
    """
    with shared_runner(), batch_progress(stage, total) as step:
        if apart is None or waiting or runs_elsewhere():
            results = _results(calls, in_turn=in_turn, waiting=waiting)
        else:
            results = _results_apart(calls, total, apart)
        for result in results:
            step()
            yield result


def _results_apart(calls: Iterable[Call], total: int, least: int) -> Iterator[Any]:
    workers = min(total, load_settings().workers or cores())
    # The threads only wait for the processes, which are stopped first.
    with _threads(max(1, workers)) as threads, batch_processes(total, workers, least) as executor:
        if executor is None:
            yield from _results(calls, in_turn=True, waiting=False)
            return
        given = [(task, {**parameters, "executor": executor}) for task, parameters in calls]
        for future in [_submitted(threads, *call) for call in given]:
            yield future.result()


def _results(calls: Iterable[Call], *, in_turn: bool, waiting: bool) -> Iterator[Any]:
    runner = _shared.get()
    assert runner is not None  # noqa: S101 (for the types)
    if in_turn or (runner.in_process and not (waiting and runner.may_thread)):
        for task, parameters in calls:
            yield runner.wait(task, parameters)
    else:
        for future in [runner.submit(*call) for call in calls]:
            yield future.result()


class _Runner:
    """A task runner that is started with the first batch."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self._settings, self._stack = settings, stack
        self.in_process = settings.task_runner == "threads" and settings.task_workers in (None, 1)
        self.may_thread = settings.task_workers is None
        self._runner: Any = None

    def wait(self, task: Task[..., Any], parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401 (the task's)
        """Return a task's result."""
        return task(**parameters) if self.in_process else self.submit(task, parameters).result()

    def submit(self, task: Task[..., Any], parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a future)
        """Start a task; return its future."""
        if self._runner is None:
            with _cluster_named(self._settings, Exception):
                self._runner = self._stack.enter_context(_runner_of(self._settings))
        with _cluster_named(self._settings, OSError):  # Dask connects with the first batch
            return _submitted(self._runner, task, parameters)


@contextmanager
def _threads(workers: int) -> Iterator[_Runs]:
    if on_page():
        runner: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=workers)
        with runner:
            yield runner
        return
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:  # what waits its turn is not begun after Ctrl-C or a failure
        pool.shutdown(cancel_futures=True)


def _submitted(runner: _Runs, task: Task[..., Any], parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a future)
    if isinstance(runner, ThreadPoolExecutor):
        # In a thread, too, it is known that flows are functions here.
        return runner.submit(copy_context().run, partial(task, **parameters))
    # Without the address every worker starts its own server, on one database.
    with get_client(sync_client=True) as client, temporary_settings({PREFECT_API_URL: str(client.api_url)}):
        return runner.submit(task, parameters=dict(parameters))


_shared: ContextVar[_Runner | None] = ContextVar("shared_runner", default=None)


@contextmanager
def _opened(settings: Settings) -> Iterator[_Runner]:
    require_runner(settings)
    with ExitStack() as stack:
        yield _Runner(settings, stack)


@contextmanager
def _cluster_named(settings: Settings, *errors: type[Exception]) -> Iterator[None]:
    """Name the setting and the address in errors of a cluster, which its library may not do."""
    address = settings.task_runner_address
    try:
        yield
    except errors as error:
        if address is None or settings.task_runner not in _PACKAGES:
            raise
        where, why = re.sub(r"//[^/@]*@", "//", address), (str(error).splitlines() or [""])[0][:200]
        raise TransientError(
            f"SKILLERY_TASK_RUNNER_ADDRESS={where}: no {settings.task_runner} cluster answers there "
            f"({type(error).__name__}: {why}): start it, or unset the variable: workers start here"
        ) from error


def _require_answer(address: str | None) -> None:
    """Raise an OSError where nobody listens at an address: Ray itself would try for 12 minutes."""
    if address and (place := urlsplit(address if "//" in address else f"//{address}")).port:
        socket.create_connection((place.hostname or "", place.port), _PATIENCE).close()


def _runner_of(settings: Settings) -> AbstractContextManager[_Runs]:
    workers, address = settings.task_workers or cores(), settings.task_runner_address
    if settings.task_runner == "dask":
        from prefect_dask.task_runners import DaskTaskRunner  # noqa: PLC0415 (comes with an extra)

        logging.getLogger("distributed").setLevel(logging.WARNING)
        # One thread a worker, because batches are mostly Python. No worker listens outside this machine.
        local = {
            "n_workers": workers, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None,
        }  # fmt: skip
        return DaskTaskRunner(address=address) if address else DaskTaskRunner(cluster_kwargs=local)
    if settings.task_runner == "ray":
        _require_answer(address)
        from prefect_ray import RayTaskRunner  # noqa: PLC0415 (comes with an extra)

        local = {"num_cpus": workers, "include_dashboard": False}
        if settings.quiet:
            local |= {"logging_level": logging.WARNING, "log_to_driver": False}
        found: TaskRunner[Any] = RayTaskRunner(address=address, init_kwargs={} if address else local)
        return found
    return _threads(workers)
