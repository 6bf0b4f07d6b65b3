from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from storage.errors import EnvironmentStopped
from tasks.induce.replay.chromium import ApplicationUnusable, launched
from tasks.induce.replay.environment import CommandEnvironment, LineProcess, LiveAnswer
from tests.support.chromium_there import require_chromium
from tests.support.induce.workshop.application import workshop
from tests.support.induce.workshop.server import Asked, Said, goes_to, served
from tests.support.processes import marked

_FETCH = "to => fetch(to, {mode: 'no-cors'}).then(() => 'there', () => 'refused')"
_SOCKET = "to => new Promise(say => { const s = new WebSocket(to); s.onerror = s.onopen = e => say(e.type) })"
_ADDRESSES = """() => new Promise(async say => {
    const connection = new RTCPeerConnection(), found = [];
    connection.onicecandidate = each => each.candidate ? found.push(each.candidate) : say(found.length);
    connection.createDataChannel('x');
    await connection.setLocalDescription();
})"""


def evaluated(browser: Browser, url: str, script: str, *given: str) -> list[object]:
    """Return what a script gives on a page, called with each of what is given."""
    page = browser.new_page()
    page.goto(url)
    found = [page.evaluate(script, each) for each in given] if given else [page.evaluate(script)]
    page.context.close()
    return found


@pytest.mark.parametrize("other", ["0.0.0.0", socket.gethostname()])  # noqa: S104 (where it must not go)
def test_no_other_host_is_found_by_a_page(browser: Browser, other: str) -> None:
    hosts = []

    def answer(asked: Asked) -> Said:
        hosts.append(asked.host.partition(":")[0])
        return goes_to(asked.given["to"]) if "to" in asked.given else Said("<title>here</title>")

    with served(answer, "0.0.0.0") as url:  # noqa: S104 (what must not be found must be there)
        port = url.rpartition(":")[2]
        there = f"http://{other}:{port}"
        found = evaluated(browser, url, _FETCH, there, f"/?to={there}", f"http://localhost:{port}")
        socket_opened = evaluated(browser, url, _SOCKET, f"ws://{other}:{port}")
    assert found == ["refused", "refused", "there"]
    assert socket_opened == ["error"]
    assert set(hosts) == {"127.0.0.1", "localhost"}


def test_a_page_has_no_address_for_connections_of_its_own(browser: Browser) -> None:
    with served(lambda _: Said("<title>here</title>")) as url:
        assert evaluated(browser, url, _ADDRESSES) == [0]


def program(*given: str) -> str:
    return shlex.join([sys.executable, "-m", "tasks.induce.replay.chromium", *given])


def test_the_browser_sees_nothing_of_our_environment_and_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_chromium()
    monkeypatch.setenv("MARK_OF_A_TEST", "not for browsers")
    before = set(_chromiums())
    with workshop() as shop, LineProcess(program(shop.url), tmp_path) as process:
        assert CommandEnvironment(process).reset("any") == LiveAnswer("", None, pages=True)
        started = set(_chromiums()) - before
        seen = [Path(f"/proc/{pid}/environ").read_bytes() for pid in started]
        inherited = set(marked("not for browsers")) & started
    assert len(started) > 1
    assert inherited == set()
    assert not any(b"not for browsers" in each or b"HOME=/root" in each for each in seen)
    deadline = time.monotonic() + 10
    while set(_chromiums()) & started and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not set(_chromiums()) & started


def _chromiums() -> list[int]:
    """Return the processes of browsers below this one that are not over; another worker has its own."""
    found, parents = [], dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        parents[int(folder.name)] = int(parent)
        if b"chrom" in command.partition(b"\0")[0] and state != "Z":
            found.append(int(folder.name))
    return [pid for pid in found if os.getpid() in _above(pid, parents)]


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    above = []
    while pid := parents.get(pid, 0):
        above.append(pid)
    return above


def test_without_a_program_that_is_chromium_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for given, what in (
        ([], r"there is no chromium, chromium-browser, .*--chromium"),
        (["--chromium", "firefox"], "there is no firefox: install Chromium"),
    ):
        with LineProcess(program("http://127.0.0.1:9/", *given), tmp_path) as process:
            environment = CommandEnvironment(process)
            with pytest.raises(EnvironmentStopped, match=what):
                environment.reset("any")


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("exit 0", "browser has been closed$"),
        ("echo no; echo no sandbox >&2; exit 1", "started: no sandbox$"),
    ],
)
def test_a_program_that_is_no_browser_cannot_be_started(tmp_path: Path, script: str, what: str) -> None:
    own = tmp_path / "browser"
    own.write_text(f"#!/bin/sh\n{script}\n")
    own.chmod(0o755)
    with LineProcess(program("http://127.0.0.1:9/", "--chromium", str(own)), tmp_path) as process:
        environment = CommandEnvironment(process)
        with pytest.raises(EnvironmentStopped, match=what):
            environment.reset("any")


def test_without_playwright_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(ApplicationUnusable, match=r"pip install '.\[browser\]'"), launched("127.0.0.1"):
        pass
