"""A live page of an application, in a context of its own: what it shows as an outline, and actions on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tasks.induce.replay.browser.snapshot import outline_text
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.trajectories.record import Action

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request

T = TypeVar("T")
_FOCUS = ":focus, body"  # the last of these has the keyboard
_CALM, _LONG_CALM = 0.05, 0.2  # seconds without a request: after an action, after a run
_OPEN_ENDED = frozenset({"eventsource", "ping", "websocket"})  # requests that nobody waits for the end of
# What actions are given, and what does them with the last of it.
_ACTIONS: Mapping[str, tuple[tuple[str, ...], Callable[[Locator, str, float], object]]] = {
    "click": ((ELEMENT,), lambda on, _, ms: on.click(timeout=ms)),
    "fill": ((ELEMENT, "text"), lambda on, text, ms: on.fill(text, timeout=ms)),
    "select_option": ((ELEMENT, "option"), lambda on, option, ms: on.select_option(option, timeout=ms)),
    "keyboard_press": (("key",), lambda on, key, ms: on.press(key, timeout=ms)),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in a browser, in seconds: of one action, of a run, and of waiting for what a page lacks."""

    action: float = 5.0
    run: float = 60.0
    lacking: float = 1.0


class PageBroken(Exception):
    """A page cannot be read, or an action not be done on it; the text is the reason."""


class LivePage:
    """A page of a run, whose time begins with it."""

    def __init__(self, page: Page, limits: Limits) -> None:
        self._page, self._limits = page, limits
        self._end = time.monotonic() + limits.run
        self._under_way: set[Request] = set()
        self._begun = 0
        self._ids: Mapping[str, object] = {}
        page.on("request", self._begin)
        page.on("requestfinished", self._finish)
        page.on("requestfailed", self._finish)

    def _begin(self, request: Request) -> None:
        if request.resource_type not in _OPEN_ENDED:
            self._begun += 1
            self._under_way.add(request)

    def _finish(self, request: Request) -> None:
        self._under_way.discard(request)

    def open(self, url: str) -> None:
        """Go to an address.

        Raises:
            PageBroken: It cannot be loaded in the time of an action.
        """
        with self._in_time() as ms:
            self._page.goto(url, timeout=ms)

    def settle(self, calm: float = _LONG_CALM) -> None:
        """Wait until no request was under way for so many seconds; those that take too long are let be.

        Raises:
            PageBroken: The time of the run is over.
        """
        with self._in_time() as ms:
            end = time.monotonic() + ms / 1000
            while time.monotonic() < end:
                begun = self._begun
                self._page.wait_for_timeout(1000 * calm)
                if not self._under_way and self._begun == begun:
                    return
            self._under_way.clear()

    def look(self, read: Callable[[str], T], is_found: Callable[[T], bool]) -> T:
        """Return what is read off the page's outline, as soon as it is what is looked for.

        Args:
            read: Gives something for the text of an outline.
            is_found: Tells whether that is what is looked for. Where it is not for `Limits.lacking` seconds
                after the page has settled, the page lacks it, and what was read last is returned.

        Raises:
            PageBroken: The page cannot be read, or the time of the run is over.
        """
        self.settle(_CALM)
        end = time.monotonic() + self._limits.lacking
        while not is_found(found := read(self._outline())) and time.monotonic() < end:
            self.settle(_CALM)
        return found

    def _outline(self) -> str:
        with self._in_time() as ms:
            text = outline_text(self._page.aria_snapshot(mode="ai", timeout=ms))
        self._ids = outline_of(text).elements
        return text

    def do(self, action: Action) -> None:
        """Do an action: click, fill, select_option or keyboard_press, on the page that was looked at last.

        Raises:
            PageBroken: There is no such action or element, or it cannot be done in the time of an action.
        """
        name, given = action.name, action.args
        if name not in _ACTIONS:
            msg = f"{name} is no action in a browser: there are {', '.join(_ACTIONS)}"
            raise PageBroken(msg)
        wanted, act = _ACTIONS[name]
        if set(given) != set(wanted) or not all(isinstance(given[each], str) for each in wanted):
            msg = f"{name} takes {' and '.join(wanted)} as texts, and is given {dict(given)!r:.120}"
            raise PageBroken(msg)
        on = self._page.locator(_FOCUS).last
        if ELEMENT in wanted:
            # Only an id of the outline is put into the locator: nothing that was recorded is a selector.
            if given[ELEMENT] not in self._ids:
                msg = f"{name} is on {given[ELEMENT]!r:.60}, which is no element of the page"
                raise PageBroken(msg)
            on = self._page.locator(f"aria-ref={given[ELEMENT]}")
        with self._in_time() as ms:
            act(on, given[wanted[-1]], ms)

    @contextmanager
    def _in_time(self) -> Iterator[float]:
        """Yield the milliseconds that an action may take; say in one line what Playwright says in many."""
        from playwright.sync_api import Error, TimeoutError  # noqa: A004, PLC0415 (an extra)

        left, over = self._end - time.monotonic(), f"the run takes longer than {self._limits.run:g} s"
        if left <= 0:
            raise PageBroken(over)
        try:
            yield 1000 * min(left, self._limits.action)
        except (Error, ValueError) as error:
            is_over = isinstance(error, TimeoutError) and left < self._limits.action
            raise PageBroken(over if is_over else str(error).strip().splitlines()[0]) from error


@contextmanager
def opened_page(browser: Browser, url: str, limits: Limits) -> Iterator[LivePage]:
    """Open an address in a context of its own: without downloads, pop-ups, permissions and service workers.

    Raises:
        PageBroken: It cannot be loaded.
    """
    context: Any = browser.new_context(accept_downloads=False, permissions=[], service_workers="block")
    try:
        page = LivePage(context.new_page(), limits)
        context.on("page", lambda other: other.close())
        page.open(url)
        yield page
    finally:
        context.close()
