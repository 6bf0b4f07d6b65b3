from __future__ import annotations

import random
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser

from tasks.induce.replay.chromium import Limits, LivePage, PageBroken, opened_page
from tasks.induce.replay.command import PageReplay
from tasks.induce.replay.environment import LiveAnswer
from tasks.induce.replay.verify import Replay, opened, verify
from tasks.induce.replay.window import Broken, SourceWindow, call_at
from tasks.induce.skills.actions import Arg, Body, Find, SkillAction
from tasks.induce.trajectories.outline import Element, outline_of
from tasks.induce.trajectories.record import Action, Trajectory
from tests.support.induce.recordings import renewal, whole, windows_of
from tests.support.induce.workshop import application
from tests.support.induce.workshop.application import Workshop, workshop
from tests.support.induce.workshop.server import Asked, Said, served
from tests.support.induce.workshop.tasks import recorded, tasks
from tests.support.processes import slow_but

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
    """A key goes to the page where no element has the keyboard; what an action starts is waited for."""

    def work(page: LivePage) -> None:
        before = lines(page)
        assert 'textbox "Name" value=""' in before
        assert 'combobox "Soil" value="loam" options=["loam", "clay"]' in before
        assert any("a in BODY" in line for line in did(page, "keyboard_press", key="a"))
        assert 'textbox "Name" value="Fern"' in did(page, "fill", "textbox name", text="Fern")
        clay = 'combobox "Soil" value="clay" options=["loam", "clay"]'
        assert clay in did(page, "select_option", "combobox soil", option="clay")
        assert any("F2 in INPUT" in line for line in did(page, "keyboard_press", key="F2"))
        assert 'button "Saved"' in did(page, "click", "button save")

    on_page(browser, url, work)


def test_what_a_page_lacks_is_waited_for_until_it_is_quiet_and_a_request_without_an_end_is_let_be(
    browser: Browser, url: str
) -> None:
    def work(page: LivePage) -> tuple[object, float, float]:
        began = time.monotonic()
        found = page.look(lambda text: outline_of(text).find("button", "sell", 0), bool)
        lacking = time.monotonic() - began
        did(page, "click", "button wait")
        began = time.monotonic()
        lines(page)
        return found, lacking, time.monotonic() - began

    found, lacking, waited = on_page(browser, url, work)
    assert found is None
    assert SHORT.lacking <= lacking < SHORT.run / 2
    assert waited < SHORT.run / 2


UNDONE = (
    (Action("hover", {"element": "e1"}), "hover is no action in a browser: there are click, fill"),
    (Action("click", {}), "click takes element as texts, and is given {}"),
    (Action("click", {"element": "e1", "text": "x"}), "click takes element as texts, and is given"),
    (Action("click", {"element": "e1 >> xpath=.."}), "'e1 >> xpath=..', which is no element of the page"),
    (Action("click", {"element": ["e1"]}), "click takes element as texts"),
    (Action("keyboard_press", {"key": 7}), "keyboard_press takes key as texts"),
    (Action("keyboard_press", {"key": "Nonsense"}), "Unknown key"),
)


def test_what_cannot_be_done_breaks_the_page(browser: Browser, url: str) -> None:
    def work(page: LivePage) -> None:
        lines(page)
        for action, reason in UNDONE:
            with pytest.raises(PageBroken, match=reason):
                page.do(action)

    on_page(browser, url, work)


@pytest.mark.parametrize("on", slow_but({"button off"}, ["button off", "button spin"]))
def test_an_element_that_cannot_be_clicked_breaks_the_page_in_time(
    browser: Browser, url: str, on: str
) -> None:
    began = time.monotonic()
    with pytest.raises(PageBroken, match="Timeout"):
        on_page(browser, url, partial(did, name="click", on=on))
    assert time.monotonic() - began < SHORT.run / 2


@pytest.mark.parametrize(
    "on", slow_but({"button ask"}, ["button ask", "button off", "button spin"])
)  # between actions, and in one
def test_a_run_has_an_end(browser: Browser, url: str, on: str) -> None:
    def work(page: LivePage) -> None:
        while True:
            did(page, "click", on)

    with pytest.raises(PageBroken, match=r"^the run takes longer than 1 s$"):
        on_page(browser, url, work, Limits(run=1.0))


def test_no_window_is_opened_no_file_loaded_and_no_question_confirmed(browser: Browser, url: str) -> None:
    with opened_page(browser, url, Limits(lacking=0.3)) as page:
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


ALL = {f"{task.kind}-{task.number}": task for task in tasks()}


@dataclass(frozen=True)
class Bench:
    """The workshop, a browser, and replay in both."""

    browser: Browser
    shop: Workshop
    replay: Replay

    def recording(self, name: str) -> Trajectory:
        return recorded(self.browser, self.shop, ALL[name])

    def replayed(self, body: Body, window: SourceWindow) -> Broken | None:
        assert self.replay.takes(body, window)
        call = call_at(body, window)
        assert not isinstance(call, Broken)
        return self.replay.replay(body, window, call)


@pytest.fixture(scope="module")
def bench(browser: Browser) -> Iterator[Bench]:
    with workshop() as shop:
        program = shlex.join([sys.executable, "-m", "tasks.induce.replay.chromium", shop.url])
        with opened(f"command:{program}", Path()) as replay:
            yield Bench(browser, shop, replay)


def call_of(body: Body, window: SourceWindow) -> dict[str, object]:
    call = call_at(body, window)
    assert isinstance(call, dict)
    return call


@pytest.fixture(scope="module")
def cancel(bench: Bench) -> Trajectory:
    """A recording with a row that is clicked, a dialog, a choice and a tick, and two buttons alike."""
    return bench.recording("cancel-0")


def on(name: str, role: str, target: str, element: Arg | Find, **args: Arg) -> SkillAction:
    given = sorted({"element": element, **args}.items())
    return SkillAction(name, role, target, tuple(given))


def test_what_is_recorded_under_way_is_typed_into_a_page_that_a_script_redraws(bench: Bench) -> None:
    note = bench.recording("note-1")
    body, window = whole(note, 4)
    assert bench.replayed(body, window) is None
    assert bench.replayed(body[:3], window) == Broken(3, "another page is seen after it")


def test_a_change_of_another_record_shows_in_the_state(bench: Bench) -> None:
    body, window = next(each for each in windows_of(bench.recording("order-0")) if each[1].start == 1)
    call = call_of(body, window)
    others = {
        name: replace(element, ordinal=3) if name.endswith("textbox") else element
        for name, element in call.items()
    }
    assert bench.replay.replay(body, window, call) is None
    assert bench.replay.replay(body, window, others) == Broken(2, "the application is left in another state")


def test_what_cannot_be_done_breaks_the_action(bench: Bench, cancel: Trajectory) -> None:
    body, window = whole(cancel, 3)
    wrong = replace(body[2], target="sell the bicycle", args=(("element", Find(0)),))
    assert bench.replayed((*body[:2], wrong), window) == Broken(
        2, "the page has no button 'sell the bicycle' with the ordinal 0"
    )
    given = {**call_of(body, window), "text": "x"}
    filled = (*body[:2], on("fill", "button", "start work", Find(0), text=Arg("text")))
    broken = bench.replay.replay(filled, window, given)
    assert broken is not None
    assert (broken.place, broken.reason[:12]) == (2, "fill fails: ")
    speaking = SkillAction("send_msg_to_user", None, None, (("text", Arg("text")),))
    told = Broken(0, "send_msg_to_user speaks to a person")
    assert bench.replay.replay((speaking,), window, given) == told


@pytest.mark.slow
def test_a_trajectory_that_does_not_go_on_breaks_the_skill(
    bench: Bench, cancel: Trajectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, window = whole(cancel, 2)
    titled, numbers = application.page, count()  # no page is the same twice
    assert bench.replayed(body[:1], window) == Broken(1, "another page is seen after it")
    monkeypatch.setattr(application, "page", lambda title, body: titled(f"{title} {next(numbers)}", body))
    unseen = replace(window, trajectory_id="unseen")
    assert bench.replayed(body[:1], unseen) == Broken(
        1, "the trajectory does not go on: step 2: the page has no button 'cancel job' with the ordinal 0"
    )


@pytest.mark.slow
def test_what_an_agent_says_is_left_out(bench: Bench, cancel: Trajectory) -> None:
    said = replace(cancel.steps[2], t=9)
    said = replace(said, action=type(said.action)("send_msg_to_user", {"text": "I cancel it."}))
    spoken = replace(cancel, trajectory_id="spoken", steps=(*cancel.steps[:2], said, *cancel.steps[2:]))
    body, window = whole(spoken, 2)
    assert bench.replayed(body, window) is None


def test_tools_and_what_cannot_be_done_here_are_not_taken(
    bench: Bench, cancel: Trajectory, caplog: pytest.LogCaptureFixture
) -> None:
    body, window = whole(cancel, 2)
    steps = list(window.steps)
    steps[4] = replace(steps[4], element=Element("e1", "checkbox", "tell the mayor", 0))
    foreign = replace(window, trajectory_id="foreign", steps=steps)
    assert not bench.replay.takes(*whole(renewal("ada"), 3))
    assert not bench.replay.takes((), window)
    assert not bench.replay.takes(body, foreign)
    assert bench.replay.takes(body, window)
    why = "step 4: the page has no checkbox 'tell the mayor' with the ordinal 0"
    assert [each.message for each in caplog.records] == [f"foreign is not replayed in live pages: {why}"]
    assert verify(body, [foreign, window], bench.replay).how == ("command", "recorded")


@pytest.mark.slow
def test_an_application_that_ends_otherwise_each_time_proves_nothing(
    bench: Bench, cancel: Trajectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, window = whole(cancel, 2)
    reset = bench.shop.records.reset

    def reset_with_a_number() -> None:
        reset()
        bench.shop.records.state["ticket"] = {"number": random.random()}  # noqa: S311 (that is what is wrong)

    monkeypatch.setattr(bench.shop.records, "reset", reset_with_a_number)
    restless = replace(window, trajectory_id="restless")
    assert not bench.replay.takes(body, restless)
    assert bench.replay.replay(body, restless, {}) == Broken(0, "the same actions leave another state")


@pytest.mark.slow
def test_a_trajectory_that_can_no_longer_be_done_proves_nothing(
    bench: Bench, cancel: Trajectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body, own = next(each for each in windows_of(cancel) if each[1].start == 2)
    window = replace(own, trajectory_id="once")
    reset = bench.shop.records.reset

    def reset_without_jobs() -> None:
        reset()
        bench.shop.records.state["jobs"] = []

    assert bench.replay.takes(body, window)
    monkeypatch.setattr(bench.shop.records, "reset", reset_without_jobs)
    assert verify(body, [window], bench.replay).how == ("recorded",)
    assert not bench.replay.takes(body, window)
    (line,) = (each.message for each in caplog.records)
    assert line.startswith("once is not replayed in live pages: what comes before a window can no longer be")
    monkeypatch.undo()
    assert verify(body, [window, own], bench.replay).how == ("command", "recorded")


class Restless:
    """An environment of pages that ends in another state each time."""

    def __init__(self) -> None:
        self._ends = count()

    def page(self, _until: str | None) -> LiveAnswer:
        return LiveAnswer("a page", None, pages=True)

    reset = page

    def step(self, _action: Action, _element: Element | None) -> LiveAnswer:
        return self.page(None)

    def digest(self) -> str:
        return str(next(self._ends))


def test_pages_that_end_otherwise_each_time_prove_nothing() -> None:
    body, window = whole(renewal("ada"), 3)
    replay = PageReplay(Restless())  # type: ignore[arg-type]
    assert not replay.takes(window)
    assert replay.replay(body, window, {}) == Broken(0, "the same actions leave another state")
