"""What flows of one command run with: Prefect's home below a root, and a temporary server or none."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from flows.server.child import end_child, start_child
from storage.errors import TransientError
from storage.folder import make_private
from storage.root import Root

_LOG = logging.getLogger(__name__)
_RECORD = "prefect/server.json"  # below the folder of the root on this machine
_MODULE = "flows.server.temporary"
_ENVIRONMENT = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
# Seconds: to start on a busy machine; to take what Prefect still has for it.
_START, _LAST_WORDS = 120.0, 2.5
_DEFAULTS = {
    # Prefect's server and client send usage figures to their makers unless told otherwise.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_PROMPT": "false",
}


def prepare_home(root: Root) -> Path:
    """Make Prefect's home below the root and set the environment for it; return the home.

    Settings that the user has made stay, also another home.
    """
    home = root.folder / "prefect"
    make_private(home)  # its database holds the parameters of runs
    for name, value in {"PREFECT_HOME": str(home), **_DEFAULTS}.items():
        os.environ.setdefault(name, value)
    # Prefect makes only the last folder of the path, and its server does not start without it.
    chosen = Path(os.environ["PREFECT_HOME"])
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@contextmanager
def server_for(root: Root, meanwhile: Callable[[], object], *, needed: bool) -> Iterator[None]:
    """Have what flows need in the body: the server that Prefect's settings name, a temporary one, or none.

    Without one that is named, and if none is `needed`, flows run as functions. A temporary server runs on
    this machine. `meanwhile` is called while it starts, which takes seconds of a processor of its own.

    It has a session of its own, since Ctrl-C must end the command before the server that it tells of it; it
    takes requests with this command's password alone; and it ends when the command's pipe to it closes, be
    the command killed. Raises `TransientError` if the server did not start (the message names the file with
    its words), or the one that the settings name does not answer.
    """
    if named := os.environ.get("PREFECT_API_URL") or _named():
        _require_answer(named)
        yield
        return
    if not needed:
        meanwhile()
        with as_functions():
            yield
        return
    with ExitStack() as server:
        process, port, password, log = _started(server, Root(root.folder))
        meanwhile()
        await_health(process, port, log)
        with _settings(f"http://127.0.0.1:{port}/api", password):
            try:
                yield
            finally:
                _send_what_waits()


@contextmanager
def as_functions() -> Iterator[None]:
    """Have flows and tasks called as functions in the body, and in what copies its context.

    Prefect's engine asks a server at each step, and to start one takes longer than a night with few changes.
    Whoever else runs flows in this process meets Prefect's engine. SIGTERM raises what it raises in a flow.
    """
    from prefect.utilities.engine import capture_sigterm  # noqa: PLC0415 (reads the environment)

    _choose_by_context()
    before = _as_functions.set(True)
    try:
        with capture_sigterm():
            yield
    finally:
        _as_functions.reset(before)


_as_functions: ContextVar[bool] = ContextVar("as_functions", default=False)


@functools.cache
def _choose_by_context() -> None:
    """Let calls of flows and tasks ask `_as_functions`, from now on: bodies may overlap in threads."""
    from prefect import Flow, Task  # noqa: PLC0415 (as above)

    def choose(engine: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(engine)
        def call(self: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the function's)
            return (run if _as_functions.get() else engine)(self, *args, **kwargs)

        return call

    for kind, run in ((Flow, _run_flow), (Task, _run_task)):
        type.__setattr__(kind, "__call__", choose(kind.__call__, run))


def _run_flow(flow: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (Prefect's, and the function's)
    _LOG.info("flow '%s' begins", flow.name)
    return flow.fn(*args, **kwargs)


def _run_task(task: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as above)
    waits = task.retry_delay_seconds[: task.retries] if task.retries else []
    for wait in waits:
        try:
            return task.fn(*args, **kwargs)
        except TransientError as error:
            _LOG.warning("task %s is tried again in %.0f s: %s", task.name, wait, error)
            time.sleep(wait)
    return task.fn(*args, **kwargs)


def _started(server: ExitStack, record: Root) -> tuple[subprocess.Popen[bytes], int, str, Path]:
    """Start a process that ends with `server`; return it, its port, its password and the file of its log."""
    _sweep(record)
    port, password = _free_port(), f"skillery:{secrets.token_urlsafe(24)}"
    log = Path(record.at("prefect/server.log"))
    log.parent.mkdir(parents=True, exist_ok=True)
    process = start_child(
        _MODULE, [str(port)], {**_ENVIRONMENT, "PREFECT_SERVER_API_AUTH_STRING": password}, log
    )
    server.callback(record.delete, _RECORD)
    server.callback(end_child, process)
    record.write_json(_RECORD, {"pid": process.pid, "command": os.getpid()})
    return process, port, password, log


def _named() -> str | None:
    """Return the address of the server that Prefect's settings name, if they do."""
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 (reads the environment when imported)

    named = PREFECT_API_URL.value()
    return str(named) if named else None


def _settings(url: str, password: str) -> AbstractContextManager[object]:
    from prefect.settings import (  # noqa: PLC0415 (reads the environment when imported)
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    return temporary_settings(
        {
            PREFECT_API_URL: url,
            PREFECT_API_AUTH_STRING: password,
            # They tell a server of crashed runs, and each flow would wait up to a second for its last one.
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        }
    )


def _require_answer(url: str) -> None:
    try:
        with urlopen(f"{url.rstrip('/')}/health", timeout=10):  # noqa: S310 (the user's own address)
            pass
    except HTTPError:
        pass  # an answer: what it asks for, Prefect knows
    except (OSError, ValueError, HTTPException) as error:
        raise TransientError(
            f"PREFECT_API_URL is {url}, and no server answers there ({error}): start that server, "
            "or unset the variable to run without one"
        ) from error


def await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a server answers on a port of this machine.

    Raises:
        TransientError: It ended, or did not answer in 120 seconds; the message names the file with its words.
    """
    until = time.monotonic() + _START
    while time.monotonic() < until and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, HTTPException), contextlib.closing(connection):
            connection.request("GET", "/api/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise TransientError(f"Prefect's server did not start; see {log}, and run again")


def _send_what_waits() -> None:
    """Send the server what Prefect keeps for it: at exit, without the server, it tries for a minute."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415 (reads the environment when imported)
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=_LAST_WORDS)


def _sweep(record: Root) -> None:
    """End the server of a command that is gone; the record names both by their process ids."""
    left: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # a damaged record names nothing
        left = record.read_json(_RECORD) or {}
    pid, command = left.get("pid"), left.get("command")
    if isinstance(pid, int) and isinstance(command, int) and not _runs(command, ""):
        if _runs(pid, _MODULE):
            os.kill(pid, signal.SIGTERM)
        record.delete(_RECORD)


def _runs(pid: int, name: str) -> bool:
    """Tell whether a process runs, and its command line holds a name."""
    try:
        return name in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Serve on the port that the command line names."""
    import uvicorn  # noqa: PLC0415 (comes with Prefect)

    uvicorn.run(
        "prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=int(sys.argv[1]),
        log_level="error", lifespan="on",
    )  # fmt: skip


if __name__ == "__main__":
    main()
