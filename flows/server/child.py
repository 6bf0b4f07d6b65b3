"""Child processes that end with this one, however it ends."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_END = 5.0  # seconds in which a child may end in order


def start_child(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a module as `python -m` does, in a session of its own, and return its process.

    The child ends when its pipe to this process closes, be this process killed. Ctrl-C does not reach it. The
    `environment` is added to that of this process; `log` is the file for its words, written anew; None: they
    go where this process's go.
    """
    command = [sys.executable, "-m", "flows.server.child", module, *arguments]
    with contextlib.ExitStack() as files:
        words = files.enter_context(log.open("wb")) if log else None
        return subprocess.Popen(
            command, env={**os.environ, **environment}, start_new_session=True, stdin=subprocess.PIPE,
            stdout=words, stderr=words,
        )  # fmt: skip


def end_child(process: subprocess.Popen[bytes], seconds: float = _END) -> None:
    """End a child and all that it started; what has not ended after so many seconds is killed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)  # also its own children, so that they say how they ended
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _end_with_parent() -> None:
    # Until the parent closes it, or is gone. Not through `sys.stdin`, whose lock ends Python with an error.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the module that the command line names, until it ends or the parent does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
