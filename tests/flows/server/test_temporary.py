"""The temporary server is this command's alone, and is gone with it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

_HOLD = """
import sys, time
from flows.commands.runs import prefect_for
from storage.root import Root
with prefect_for(Root(sys.argv[1])):
    from prefect.settings import PREFECT_API_URL
    print(PREFECT_API_URL.value(), flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holding(root: Path, seconds: float) -> subprocess.Popen[str]:
    """Start a process that holds a server for so many seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-c", _HOLD, str(root), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def within(seconds: float, is_true: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not is_true() and time.monotonic() < until:
        time.sleep(0.05)
    return is_true()


def runs(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.prefect
def test_it_takes_this_commands_requests_alone_and_dies_when_the_command_is_killed(tmp_path: Path) -> None:
    with holding(tmp_path, 600) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        server = json.loads((tmp_path / "prefect/server.json").read_text())["pid"]
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{url}/admin/version")  # noqa: S310 (an address of this machine)
        assert os.getsid(server) != os.getsid(command.pid)
        command.kill()

    assert within(10, lambda: not runs(server))


@pytest.mark.prefect
def test_one_that_was_left_behind_is_ended_by_the_next_command(tmp_path: Path) -> None:
    stuck = [sys.executable, "-c", "import time; time.sleep(600)", "flows.server.temporary"]
    with subprocess.Popen(stuck) as left, subprocess.Popen(["true"]) as gone:
        gone.wait()
        record = tmp_path / "prefect/server.json"
        record.parent.mkdir()
        record.write_text(json.dumps({"pid": left.pid, "command": gone.pid}))

        with holding(tmp_path, 0) as command:
            assert command.wait(120) == 0

        assert left.wait(10) == -signal.SIGTERM
    assert not record.exists()
