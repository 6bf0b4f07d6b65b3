from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.hook.run import SERVING
from storage.usage import read_usage
from tests.support.command import MAIN
from tests.support.roots.hand_written import BEES, BREAD
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import SECOND
from tests.support.serving import Serving, ask_http, modern_call, serving

Make = Callable[[dict[str, str]], SkillRoot]
SEARCH = "/api/search?q=bread"


def workers_of(server: Serving) -> list[int]:
    """Return the processes that answer."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text("utf-8")
    return [n for n in map(int, children.split()) if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


@contextmanager
def only(worker: int, server: Serving) -> Iterator[None]:
    """Let the other workers stand still, so that this one answers."""
    others = [pid for pid in workers_of(server) if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def counted(server: Serving, series: str) -> float:
    lines = ask_http(server, "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(series))


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_each_worker_answers_what_is_served_and_their_figures_and_logs_are_one(skill_root: Make) -> None:
    root = skill_root({"bread": BREAD, "bees": BEES})
    root.publish()
    with serving(root.root.uri, "--workers", "2") as server:
        assert root.root.read_json(SERVING) == {"url": server.url, "pid": server.process.pid}
        first, second = workers_of(server)
        headers, call = modern_call(1, "search_skills", {"task": "bread"})
        with only(first, server):
            assert ask_http(server, SEARCH).json()["results"][0]["name"] == "bread"
            assert ask_http(server, "/mcp", call, **headers).status == 200
        root.write("bread", SECOND)
        root.publish()
        with only(second, server):
            assert ask_http(server, "/api/skills/bread?form=raw").body == SECOND.encode()
            assert ask_http(server, SEARCH).json()["index_version"] == root.served().version
            assert counted(server, 'skillery_asked_total{action="search"') == 3
            assert counted(server, 'skillery_request_seconds_count{route="/api/search"}') == 2
            assert counted(server, "skillery_usage_queue ") == 3
        os.kill(first, signal.SIGKILL)
        wait_until(
            lambda: f"worker 1 (process {first}) ended (SIGKILL): another one is started\n" in server.said
        )
        wait_until(lambda: len(workers_of(server)) == 2)
        third = next(pid for pid in workers_of(server) if pid != second)
        with only(third, server):
            assert ask_http(server, SEARCH).status == 200
        with only(second, server):
            assert counted(server, 'skillery_asked_total{action="search"') == 4
            assert counted(server, "skillery_usage_queue ") == 2
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(15) == 0
    assert (server.said[-1], any("Traceback" in line for line in server.said)) == ("stopped\n", False)
    assert read_usage(root.root, datetime.now(UTC))["event_id"].n_unique() == 2, "a killed one's wait no more"
    assert not root.root.exists(SERVING)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_workers_end_with_the_server_however_it_ends(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with serving(str(tmp_path), "--workers", "2", TMPDIR=str(tmp_path)) as server:
        workers = workers_of(server)
        server.process.send_signal(number)
        assert server.process.wait(15) == code
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert len(server.said) == 1


def test_a_worker_that_cannot_begin_ends_the_server_and_says_why(tmp_path: Path) -> None:
    command = [*MAIN, "serve", "--root", str(tmp_path), "--port", "0", "--workers", "2"]
    wrong = {**os.environ, "SKILLERY_SERVE_METHODS": '["nameless"]'}
    done = subprocess.run(command, env=wrong, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert re.search(r"skillery: .*nameless", done.stderr)
    assert not re.search(r"Traceback|serving .* at", done.stderr)
