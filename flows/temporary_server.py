"""The temporary server of Prefect for one command, which ends with the command, however that ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from storage.errors import TransientError
from storage.root import Root

_RECORD = "prefect/server.json"  # below the folder of the root on this machine
_START, _END = 120.0, 5.0  # seconds to start on a busy machine; to end before it is killed


@contextmanager
def temporary_server(root: Root) -> Iterator[None]:
    """Run a Prefect server on this machine during the body, unless Prefect's settings name one.

    It has a session of its own, since Ctrl-C must end the command before the server that it tells of it; it
    takes requests with this command's password alone; and it ends when the command's pipe to it closes, be
    the command killed.

    Raises:
        TransientError: The server did not start; the message names the file with its words.
    """
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415
    from prefect.settings import (  # noqa: PLC0415 (reads the environment when imported)
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        temporary_settings,
    )

    if PREFECT_API_URL.value():
        yield
        return
    record = Root(root.folder)
    _sweep(record)
    port, password = _free_port(), f"skillery:{secrets.token_urlsafe(24)}"
    log = Path(record.at("prefect/server.log"))
    log.parent.mkdir(parents=True, exist_ok=True)
    process = _started(port, password, log)
    record.write_json(_RECORD, {"pid": process.pid, "command": os.getpid()})
    try:
        _await_health(process, port, log)
        url = f"http://127.0.0.1:{port}/api"
        with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: password}):
            yield
            # What waits to be sent when the process ends would find no server, and say so on stderr.
            APILogWorker.drain_all(timeout=_END)
            EventsWorker.drain_all(timeout=_END)
    finally:
        _end(process)
        record.delete(_RECORD)


def _started(port: int, password: str, log: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "PREFECT_SERVER_UI_ENABLED": "false", "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1", "PREFECT_SERVER_API_AUTH_STRING": password,
    }  # fmt: skip
    command = [sys.executable, "-m", "flows.temporary_server", str(port)]
    with log.open("wb") as words:
        pipes = {"stdin": subprocess.PIPE, "stdout": words, "stderr": words}
        return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def _await_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, HTTPException), contextlib.closing(connection):
            connection.request("GET", "/api/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    msg = f"Prefect's temporary server did not start; see {log}, and run again"
    raise TransientError(msg)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 (a pipe was asked for)
    process.stdin.close()
    process.terminate()
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _sweep(record: Root) -> None:
    """End the server of a command that is gone; the record names both by their process ids."""
    left: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # a damaged record names nothing
        left = record.read_json(_RECORD) or {}
    pid, command = left.get("pid"), left.get("command")
    if isinstance(pid, int) and isinstance(command, int) and not _runs(command, ""):
        if _runs(pid, "flows.temporary_server"):
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


def _end_with_command() -> None:
    sys.stdin.buffer.read()  # until the command closes it, or is gone
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END)
    os._exit(1)


def main() -> None:
    """Serve on the port that the command line names."""
    import uvicorn  # noqa: PLC0415 (comes with Prefect)

    threading.Thread(target=_end_with_command, daemon=True).start()
    uvicorn.run(
        "prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=int(sys.argv[1]),
        log_level="error", lifespan="on",
    )  # fmt: skip


if __name__ == "__main__":
    main()
