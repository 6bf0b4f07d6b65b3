from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.sync_api import Browser

from storage.errors import EnvironmentStopped
from tasks.induce.replay.chromium import ApplicationUnusable, WebApplication, launched, without_times
from tasks.induce.replay.environment import CommandEnvironment, LineProcess, LiveAnswer
from tasks.induce.replay.snapshot import outline_text
from tasks.induce.trajectories.outline import Element, folded, outline_of
from tests.support.induce.runs import JSON
from tests.support.induce.workshop.application import workshop
from tests.support.induce.workshop.server import Asked, Said, goes_to, says_json, served
from tests.support.processes import marked, require_chromium

Answer = Callable[[Asked], Said]


def begun(url: str) -> WebApplication:
    """Return an application that was reset."""
    application = WebApplication(url)
    application.reset()
    return application


def test_an_application_is_reset_and_its_state_is_told_from_others_without_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which is not asked
    with workshop() as shop:
        application = begun(f"{shop.url}jobs/new?from=home#form")
        before = application.digest()
        shop.records.order("Saddle", "3")
        after = application.digest()
        application.reset()
        again = application.digest()
        time.sleep(0.01)
        shop.records.order("Saddle", "3")
        assert again == before != after
        assert application.digest() == after


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda _: Said("", 404), "answers POST /.skillery/reset with 404"),
        (lambda _: goes_to("/elsewhere"), "answers POST /.skillery/reset with 303"),
        (lambda _: Said("Welcome!"), "GET /.skillery/state must answer with JSON"),
        (lambda _: Said("[" * 100_000), "GET /.skillery/state must answer with JSON"),
        (lambda _: says_json("x" * (8 << 20)), "answers with more than 8,388,608 bytes"),
    ],
)
def test_an_application_that_cannot_be_reset_or_asked_is_unusable(answer: Answer, what: str) -> None:
    with served(answer) as url, pytest.raises(ApplicationUnusable, match=what):
        begun(url).digest()


def test_an_application_that_is_not_there_is_to_be_started() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ApplicationUnusable, match=r"refused.*; start it first"):
        WebApplication(f"http://127.0.0.1:{port}/").reset()


@pytest.mark.parametrize(
    "url",
    ["", "shop", "ftp://127.0.0.1/", "http:///jobs", "http://127.0.0.1:many/", "http://a,b/", "http://[::1/"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ApplicationUnusable, match="give the address of a web application"):
        WebApplication(url)


BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = (BEGIN.timestamp(), BEGIN.timestamp() + 10)
ABOUT = BEGIN + timedelta(seconds=4)


@pytest.mark.parametrize(
    "written",
    [
        "2026-03-01T12:00:04+00:00",
        "2026-03-01T12:00:04.123Z",
        "2026-03-01T14:00:04+02:00",
        "2026-03-01 12:00",
        ABOUT.timestamp(),
        int(ABOUT.timestamp() * 1000),
        ABOUT.astimezone().replace(tzinfo=None).isoformat(),  # of this machine's zone
        ABOUT.astimezone(timezone(timedelta(hours=-7))).isoformat(),
    ],
)
def test_a_time_of_the_run_is_left_out_however_it_is_written(written: object) -> None:
    held = {"orders": [{"at": written, "pieces": 3}]}
    assert without_times(held, *RUN) == {"orders": [{"at": "time", "pieces": 3}]}


OTHERS = [
    "2026-03-01", "2026-03-02T12:00:00Z", "2025-03-01T12:00:04+00:00", ABOUT.timestamp() + 86_400,
    "2026-03-01T25:00:00", "0001-01-01T00:00:00", "ready at 2026-03-01T12:00:04Z", 7, True, None,
    float("inf"),
]  # fmt: skip


@given(JSON)
@example(OTHERS)
def test_other_times_and_values_are_data(value: object) -> None:
    assert without_times(value, *RUN) == value


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
    for words, what in (
        ([], r"there is no chromium, chromium-browser, .*--chromium"),
        (["--chromium", "firefox"], "there is no firefox: install Chromium"),
    ):
        with LineProcess(program("http://127.0.0.1:9/", *words), tmp_path) as process:
            environment = CommandEnvironment(process)
            with pytest.raises(EnvironmentStopped, match=what):
                environment.reset("any")


@pytest.mark.parametrize(
    ("script", "what"),
    [
        pytest.param("exit 0", "browser has been closed$", marks=pytest.mark.slow),
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


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        pytest.param(
            """
- heading "Garden" [level=1] [ref=e2]
- button "Save" [disabled] [ref=e3]
- checkbox "Ready" [checked] [ref=e4]
- button "More" [expanded] [ref=e5]
- img "Rose" [ref=e6]""",
            """
[e2] heading "Garden"
[e3] button "Save" disabled
[e4] checkbox "Ready" checked
[e5] button "More" on
text "Rose\"""",
            id="ids and states of what one can act on",
        ),
        pytest.param(
            """
- textbox "Name" [ref=e1]: Ada
- textbox "Note" [ref=e2]
- spinbutton "Pieces" [ref=e3]: "4"
- combobox "Soil" [ref=e4]:
  - option "loam"
  - option "clay" [selected]""",
            """
[e1] textbox "Name" value="Ada"
[e2] textbox "Note" value=""
[e3] spinbutton "Pieces" value="4"
[e4] combobox "Soil" value="clay" options=["loam", "clay"]""",
            id="values and options",
        ),
        pytest.param(
            """
- generic [ref=e1]:
  - row [ref=e2] [cursor=pointer]:
    - cell "Fern" [ref=e3]
    - cell [ref=e4]:
      - link "Open" [ref=e5] [cursor=pointer]:
        - /url: "#fern"
  - generic [ref=e6]: only a text""",
            """
[e2] clickable "Fern Open"
  text "Fern"
  [e5] link "Open"
text "only a text\"""",
            id="clickable where the pointer says so",
        ),
        pytest.param(
            """
- heading [level=2] [ref=e1]:
  - link "Roses" [ref=e2]:
    - /url: "/r\"""",
            """
[e1] heading "Roses"
  [e2] link "Roses\"""",
            id="called by what is in it",
        ),
        pytest.param(
            """
- button "Save" [ref=e1]
- generic [ref=e2]:
  - dialog "Sure?" [ref=e3]:
    - button "Save" [ref=e4]
- button "Back" [ref=e5]""",
            """
dialog "Sure?"
  [e4] button "Save"
[e1] button "Save"
[e5] button "Back\"""",
            id="what lies above the page first",
        ),
    ],
)
def test_an_outline_is_made_of_a_snapshot(seen: str, shown: str) -> None:
    assert outline_text(seen) == shown.lstrip("\n")


@given(st.lists(st.tuples(st.sampled_from(["button", "link", "checkbox"]), st.text(max_size=12)), max_size=8))
def test_every_element_is_found_by_role_label_and_ordinal(named: list[tuple[str, str]]) -> None:
    entries = [
        f"{role} {json.dumps(name, ensure_ascii=False)} [ref=e{n}]" for n, (role, name) in enumerate(named)
    ]
    page = outline_of(outline_text(yaml.safe_dump(entries, allow_unicode=True)))
    seen: list[tuple[str, str]] = []
    for n, (role, name) in enumerate(named):
        ordinal = seen.count((role, folded(name)))
        seen.append((role, folded(name)))
        found = page.find(role, folded(name), ordinal)
        assert found == Element(f"e{n}", role, folded(name), ordinal)


def test_signs_that_are_not_allowed_are_blanks_and_what_is_no_snapshot_is_refused() -> None:
    assert outline_text("") == ""
    assert outline_text('- button "a\x7fb" [ref=e1]') == '[e1] button "a b"'  # which YAML does not allow
    long = f"- generic [ref=e1] [cursor=pointer]:\n  - text: {'x' * 100}"
    assert outline_text(long).split("\n")[0] == f'[e1] clickable "{"x" * 90}"'
    with pytest.raises(ValueError, match="accessibility tree cannot be read"):
        outline_text("- [")
