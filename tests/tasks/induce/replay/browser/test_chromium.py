from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.replay.browser.chromium import Chromium
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


def evaluated(chromium: Chromium, url: str, script: str, *given: str) -> list[object]:
    """Return what a script gives on a page, called with each of what is given."""

    def work(browser: Browser) -> list[object]:
        page = browser.new_page()
        page.goto(url)
        found = [page.evaluate(script, each) for each in given] if given else [page.evaluate(script)]
        page.context.close()
        return found

    return chromium.do(work)


@pytest.mark.parametrize("other", ["0.0.0.0", socket.gethostname()])  # noqa: S104 (where it must not go)
def test_no_other_host_is_found_by_a_page(chromium: Chromium, other: str) -> None:
    hosts = []

    def answer(asked: Asked) -> Said:
        hosts.append(asked.host.partition(":")[0])
        return goes_to(asked.given["to"]) if "to" in asked.given else Said("<title>here</title>")

    with served(answer, "0.0.0.0") as url:  # noqa: S104 (what must not be found must be there)
        port = url.rpartition(":")[2]
        there = f"http://{other}:{port}"
        found = evaluated(chromium, url, _FETCH, there, f"/?to={there}", f"http://localhost:{port}")
        socket_opened = evaluated(chromium, url, _SOCKET, f"ws://{other}:{port}")

    assert found == ["refused", "refused", "there"]
    assert socket_opened == ["error"]
    assert set(hosts) == {"127.0.0.1", "localhost"}


def test_the_host_of_the_application_is_found(chromium: Chromium) -> None:
    with served(lambda _: Said("<title>here</title>"), "0.0.0.0") as url:  # noqa: S104
        named = url.replace("127.0.0.1", "0.0.0.0")  # noqa: S104
        with Chromium("0.0.0.0") as own:  # noqa: S104
            assert evaluated(own, named, "() => document.title") == ["here"]


def test_a_page_has_no_address_for_connections_of_its_own(chromium: Chromium) -> None:
    with served(lambda _: Said("<title>here</title>")) as url:
        assert evaluated(chromium, url, _ADDRESSES) == [0]


def test_the_browser_sees_nothing_of_our_environment_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_OF_A_TEST", "not for browsers")
    before = set(_chromiums())
    with Chromium("127.0.0.1"):
        started = set(_chromiums()) - before
        seen = [Path(f"/proc/{pid}/environ").read_bytes() for pid in started]
        inherited = set(marked("not for browsers")) & started

    assert len(started) > 1
    assert inherited == set()
    assert not any(b"not for browsers" in each or b"HOME=/root" in each for each in seen)
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


def test_the_caller_may_have_an_event_loop_of_its_own(chromium: Chromium) -> None:
    async def asked() -> str:
        return chromium.do(lambda browser: browser.version)

    assert asyncio.run(asked())


def test_a_browser_that_has_ended_is_said_to(chromium: Chromium) -> None:
    with Chromium("127.0.0.1") as own:
        with pytest.raises(EnvironmentStopped, match="the browser has ended"):
            own.do(lambda browser: browser.close())
        with pytest.raises(EnvironmentStopped, match="the browser has ended"):
            own.do(lambda browser: browser.new_page())


def test_without_a_program_that_is_chromium_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        WrongInput, match=r"there is no chromium, chromium-browser, .*SKILLERY_INDUCE_CHROMIUM"
    ):
        Chromium("127.0.0.1")
    with pytest.raises(WrongInput, match="there is no firefox: install Chromium"):
        Chromium("127.0.0.1", "firefox")


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("exit 0", "browser has been closed$"),
        ("echo no; echo no sandbox >&2; exit 1", "started: no sandbox$"),
    ],
)
def test_a_program_that_is_no_browser_cannot_be_started(tmp_path: Path, script: str, what: str) -> None:
    program = tmp_path / "browser"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentUnusable, match=what), Chromium("127.0.0.1", str(program)):
        pass


def test_without_playwright_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "playwright", None)
    with pytest.raises(WrongInput, match=r"pip install '.\[browser\]'"):
        Chromium("127.0.0.1")
