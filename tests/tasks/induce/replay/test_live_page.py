from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser

from tasks.induce.replay.chromium import Limits, LivePage, PageBroken, opened_page
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.trajectories.record import Action
from tests.support.induce.workshop.server import Asked, Said, served

T = TypeVar("T")
SHORT = Limits(action=1.0, run=20.0, lacking=0.3)
PAGE = """<title>Garden</title>
<label>Name <input></label> <label for=soil>Soil</label><select id=soil><option>loam<option>clay</select>
<button onclick="fetch('/late').then(() => this.textContent = 'Saved')">Save</button>
<button onclick="setTimeout(() => { while (true); }, 10)">Spin</button>
<button onclick="window.open('/other')">Open</button> <a href=/other target=_blank>Leave</a>
<button onclick="fetch('/never')">Wait</button> <a href=/file download>Load</a>
<input type=file aria-label=File>
<button onclick="this.textContent = confirm('Sure?') ? 'Yes' : 'No'">Ask</button>
<button disabled>Off</button>
<script>addEventListener('keydown', each =>
 document.body.append(' ' + each.key + ' in ' + document.activeElement.tagName))</script>"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    def answer(asked: Asked) -> Said:
        time.sleep({"/late": 0.3, "/never": 3.0}.get(asked.path, 0.0))
        attached = {"Content-Disposition": "attachment"} if asked.path == "/file" else {}
        return Said(PAGE, headers=attached)

    with served(answer) as found:
        yield found


def on_page(browser: Browser, url: str, work: Callable[[LivePage], T], limits: Limits = SHORT) -> T:
    with opened_page(browser, url, limits) as page:
        return work(page)


def lines(page: LivePage) -> list[str]:
    """Return the lines of the outline without ids."""
    return [line.partition("] ")[2] or line for line in page.look(str, bool).split("\n")]


def did(page: LivePage, name: str, on: str = "", **given: Any) -> list[str]:  # noqa: ANN401
    """Do an action on `role label`, and return what is seen afterwards."""
    role, _, label = on.partition(" ")
    found = page.look(lambda text: outline_of(text).find(role, label, 0), lambda each: bool(each) or not on)
    page.do(Action(name, {**given, **({"element": found.element_id} if found else {})}))
    return lines(page)


def test_what_is_done_on_a_page_shows_in_its_outline(browser: Browser, url: str) -> None:
    def work(page: LivePage) -> None:
        before = lines(page)
        assert 'textbox "Name" value=""' in before
        assert 'combobox "Soil" value="loam" options=["loam", "clay"]' in before
        assert 'textbox "Name" value="Fern"' in did(page, "fill", "textbox name", text="Fern")
        clay = 'combobox "Soil" value="clay" options=["loam", "clay"]'
        assert clay in did(page, "select_option", "combobox soil", option="clay")
        assert any("F2 in INPUT" in line for line in did(page, "keyboard_press", key="F2"))

    on_page(browser, url, work)


def test_a_key_goes_to_the_page_where_no_element_has_the_keyboard(browser: Browser, url: str) -> None:
    assert any(
        "a in BODY" in line for line in on_page(browser, url, partial(did, name="keyboard_press", key="a"))
    )


def test_what_an_action_starts_is_waited_for(browser: Browser, url: str) -> None:
    def work(page: LivePage) -> tuple[list[str], float]:
        did_at = time.monotonic()
        return did(page, "click", "button save"), time.monotonic() - did_at

    seen, seconds = on_page(browser, url, work)
    assert 'button "Saved"' in seen
    assert seconds < SHORT.action


def test_what_a_page_lacks_is_waited_for_until_it_is_quiet(browser: Browser, url: str) -> None:
    def work(page: LivePage) -> tuple[object, float]:
        began = time.monotonic()
        return page.look(
            lambda text: outline_of(text).find("button", "sell", 0), bool
        ), time.monotonic() - began

    found, seconds = on_page(browser, url, work)
    assert found is None
    assert SHORT.lacking <= seconds < SHORT.action


def test_a_request_without_an_end_is_let_be(browser: Browser, url: str) -> None:
    def work(page: LivePage) -> float:
        did(page, "click", "button wait")
        began = time.monotonic()
        lines(page)
        return time.monotonic() - began

    assert on_page(browser, url, work) < SHORT.action


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action("hover", {"element": "e1"}), "hover is no action in a browser: there are click, fill"),
        (Action("click", {}), "click takes element as texts, and is given {}"),
        (Action("click", {"element": "e1", "text": "x"}), "click takes element as texts, and is given"),
        (Action("click", {"element": "e1 >> xpath=.."}), "'e1 >> xpath=..', which is no element of the page"),
        (Action("click", {"element": ["e1"]}), "click takes element as texts"),
        (Action("keyboard_press", {"key": 7}), "keyboard_press takes key as texts"),
        (Action("keyboard_press", {"key": "Nonsense"}), "Unknown key"),
    ],
)
def test_what_cannot_be_done_breaks_the_page(browser: Browser, url: str, action: Action, reason: str) -> None:
    def work(page: LivePage) -> None:
        lines(page)
        page.do(action)

    with pytest.raises(PageBroken, match=reason):
        on_page(browser, url, work)


def test_an_element_that_cannot_be_clicked_breaks_the_page_in_time(browser: Browser, url: str) -> None:
    began = time.monotonic()
    with pytest.raises(PageBroken, match="Timeout 1000ms exceeded"):
        on_page(browser, url, partial(did, name="click", on="button off"))
    assert time.monotonic() - began < SHORT.action + 2


def test_a_page_that_never_rests_is_left_in_time(browser: Browser, url: str) -> None:
    began = time.monotonic()
    with pytest.raises(PageBroken, match="Timeout"):
        on_page(browser, url, partial(did, name="click", on="button spin"))
    assert time.monotonic() - began < 3 * SHORT.action + 2


@pytest.mark.parametrize("on", ["button ask", "button off", "button spin"])  # between actions, and in one
def test_a_run_has_an_end(browser: Browser, url: str, on: str) -> None:
    def work(page: LivePage) -> None:
        while True:
            did(page, "click", on)

    with pytest.raises(PageBroken, match=r"^the run takes longer than 1 s$"):
        on_page(browser, url, work, Limits(run=1.0))


def test_no_window_is_opened_no_file_loaded_and_no_question_confirmed(browser: Browser, url: str) -> None:
    with opened_page(browser, url, SHORT) as page:
        for on in ("button open", "link leave", "link load", "button file"):
            did(page, "click", on)
        assert 'button "No"' in did(page, "click", "button ask")
        assert sum(len(each.pages) for each in browser.contexts) == 1


def test_an_address_that_does_not_answer_breaks_the_page(browser: Browser) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PageBroken, match="ERR_CONNECTION_REFUSED"):
        on_page(browser, f"http://127.0.0.1:{port}/", lines)
