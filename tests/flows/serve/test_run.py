from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.hook.run import SERVING
from flows.serve.run import listen
from storage.usage import read_usage
from tests.support.command import MAIN, Ask
from tests.support.roots.hand_written import BEES, BREAD
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.storied import SECOND
from tests.support.serving import Serving, ask_http, modern_call, serving

Make = Callable[[dict[str, str]], SkillRoot]


def test_what_cannot_be_served_is_told(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["serve", "--root", str(tmp_path), "--port"]
    assert "SKILLERY_SERVE_TOKEN" in ask.refused(*command, "0", "--host", "0.0.0.0")  # noqa: S104
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen there" in ask.refused(*command, str(taken.getsockname()[1]))
    monkeypatch.setenv("SKILLERY_SERVE_TOKEN", "short")
    told = ask.refused(*command, "0")
    assert ("16 or more" in told, "short" in told) == (True, False)
    monkeypatch.delenv("SKILLERY_SERVE_TOKEN")
    monkeypatch.setenv("SKILLERY_SERVE_HOSTS", "skills.example.org")
    assert "SKILLERY_SERVE_HOSTS='skills.example.org'" in ask.refused(*command, "0")


def test_an_answer_waits_for_no_other_packet() -> None:
    async def sends_at_once() -> bool:
        loop, told = asyncio.get_running_loop(), asyncio.Queue[int]()

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                own = transport.get_extra_info("socket")
                told.put_nowait(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        with listen("127.0.0.1", 0) as listening:
            async with await loop.create_server(Connection, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                writer.close()
                return bool(await told.get())

    assert asyncio.run(sends_at_once())


def test_a_server_says_where_it_is_and_that_nothing_is_served_until_something_is_and_ends_in_order(
    skill_root: Make,
) -> None:
    root = skill_root({"bread": BREAD})
    with serving(root.root.uri) as server:
        assert root.root.read_json(SERVING) == {"url": server.url, "pid": server.process.pid}
        refused = ask_http(server, "/api/search?q=bread")
        assert (refused.status, "skillery run" in refused.json()["error"]) == (503, True)
        assert root.root.uri not in refused.json()["error"]
        assert ask_http(server, "/healthz").json() == {"status": "ok", "published": False}
        headers, body = modern_call(1, "search_skills", {"task": "bread"})
        told = ask_http(server, "/mcp", body, **headers).json()["result"]
        assert (told["isError"], "nothing is served" in told["content"][0]["text"]) == (True, True)
        root.publish()
        assert ask_http(server, "/api/search?q=bread").json()["results"][0]["name"] == "bread"
        assert ask_http(server, "/healthz").json()["published"] is True
        server.process.send_signal(2)
        assert server.process.wait(10) == 0
    assert server.said[-1] == "stopped\n"
    assert not root.root.exists(SERVING)


def test_ctrl_c_ends_mcp_on_standard_input_without_waiting_for_more_of_it(storied: SkillRoot) -> None:
    call = modern_call(1, "show_skill", {"doc_id": "bread"})[1]
    with subprocess.Popen(
        [*MAIN, "serve", "--stdio", "--root", storied.root.uri], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(call) + "\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        assert server.stderr is not None
        server.send_signal(2)
        assert server.wait(4) == 130
        assert server.stderr.read() == "stopped\n"


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
        said = f"worker 1 (process {first}) ended (SIGKILL): another one is started\n"
        wait_until(lambda: said in server.said)
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
