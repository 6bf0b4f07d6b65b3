"""A run needs no server; where a cluster's workers do, it is this command's alone, and gone with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from storage.root import Root
from storage.state import read_runs
from tests.support.command import MAIN, Ask
from tests.support.paths import PROJECT

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
    """Start a process that holds a server, as a cluster's workers need one, for so many seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment["SKILLERY_TASK_RUNNER"] = "dask"
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


def test_it_takes_this_commands_requests_alone_and_dies_when_the_command_is_killed(
    tmp_path: Path, prepare_home: Callable[[Path], None]
) -> None:
    prepare_home(tmp_path)
    with holding(tmp_path, 600) as command:
        assert command.stdout is not None
        url = command.stdout.readline().strip()
        server = json.loads((tmp_path / "prefect/server.json").read_text())["pid"]
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{url}/admin/version")  # noqa: S310 (an address of this machine)
        assert os.getsid(server) != os.getsid(command.pid)
        command.kill()
    assert within(10, lambda: not runs(server))


@pytest.mark.slow
def test_one_that_was_left_behind_is_ended_by_the_next_command(
    tmp_path: Path, prepare_home: Callable[[Path], None]
) -> None:
    prepare_home(tmp_path)
    stuck = [sys.executable, "-c", "import time; time.sleep(600)", "flows.server.temporary"]
    with subprocess.Popen(stuck) as left, subprocess.Popen(["true"]) as gone:
        gone.wait()
        record = tmp_path / "prefect/server.json"
        record.write_text(json.dumps({"pid": left.pid, "command": gone.pid}))
        with holding(tmp_path, 0) as command:
            assert command.wait(120) == 0
        assert left.wait(10) == -signal.SIGTERM
    assert not record.exists()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_PASSWORD = "somebody:open-sesame"  # noqa: S105 (of servers of these tests alone)


class Up:
    """The command under way, in a process of its own."""

    def __init__(self, root: str, port: int) -> None:
        self.api, self.lines = f"http://127.0.0.1:{port}/api", list[str]()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        environment["PREFECT_SERVER_API_AUTH_STRING"] = _PASSWORD
        self.process = subprocess.Popen(
            [*MAIN, "up", "--root", root, "--port", str(port)], cwd=PROJECT, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if "Ctrl-C stops" in line:
                return
        raise AssertionError(self.lines)

    def ask(self, path: str, **given: object) -> dict[str, Any]:
        data = json.dumps(given).encode() if given else None
        known = f"Basic {b64encode(_PASSWORD.encode()).decode()}"
        headers = {"Content-Type": "application/json", "Authorization": known}
        request = Request(f"{self.api}/{path}", data, headers)  # noqa: S310
        with urlopen(request, timeout=30) as answer:  # noqa: S310 (an address of this machine)
            found: dict[str, Any] = json.load(answer)
            return found

    def stop(self, signal_number: int) -> int:
        self.process.send_signal(signal_number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def up(root: str, port: int) -> Iterator[Callable[[], Up]]:
    started: list[Up] = []

    def start() -> Up:
        started.append(Up(root, port))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop(signal.SIGKILL)


def children(process: subprocess.Popen[str]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in listed]


def gone(pids: list[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def await_state(up: Up, run: str, state: str, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while (found := up.ask(f"flow_runs/{run}")["state_type"]) != state and time.monotonic() < until:
        time.sleep(0.5)
    assert found == state


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(900)
def test_a_night_is_started_stopped_half_way_and_run_again_by_the_next_up(
    up: Callable[[], Up], root: str
) -> None:
    first = up()
    night = first.ask("deployments/name/nightly/nightly-reindex")
    assert night["parameters"]["root"] == root
    run = first.ask(f"deployments/{night['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"]
    await_state(first, run, "RUNNING")
    started = children(first.process)
    assert len(started) == 2
    began = time.monotonic()
    assert first.stop(signal.SIGINT) == 0
    assert time.monotonic() - began < 10
    assert gone(started)
    second = up()
    assert second.ask(f"flow_runs/{run}")["state_type"] == "CRASHED"
    unwanted = second.ask(f"deployments/{night['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"]
    await_state(second, unwanted, "RUNNING")
    while not second.ask("flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [unwanted]}}):
        time.sleep(0.2)
    second.ask(f"flow_runs/{unwanted}/set_state", state={"type": "CANCELLING"})
    await_state(second, unwanted, "CANCELLED")
    assert read_runs(Root(root))[0]["message"].startswith("cancelled: ")
    again = second.ask(f"deployments/{night['id']}/create_flow_run", state={"type": "SCHEDULED"})["id"]
    await_state(second, again, "COMPLETED", seconds=400)
    started = children(second.process)
    second.stop(signal.SIGKILL)
    assert gone(started)


def test_a_port_that_is_taken_is_named_before_anything_starts(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ask("up", "--root", str(tmp_path / "root"), "--port", str(port))
    assert done.code == 2
    assert f"port {port} of this machine cannot be used" in done.stderr
    assert "--port" in done.stderr
    assert not (tmp_path / "root").exists()


def test_another_server_in_the_environment_is_not_passed_over(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    done = ask("up", "--root", str(tmp_path / "root"))
    assert done.code == 2
    assert "PREFECT_API_URL names the server http://prefect.example/api" in done.stderr
