"""Chromium: a program behind `--verify command:` that does runs of pages in a web application, in a browser.

    python -m tasks.induce.replay.chromium URL [--chromium PROGRAM]

It answers the lines that `environment` asks. The browser sees PATH and an empty HOME, and finds no host but
this machine and that of the address: neither by a name or an address, nor where an answer points to.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from tasks.induce.replay.snapshot import outline_text
from tasks.induce.trajectories.cleaning import ELEMENT
from tasks.induce.trajectories.outline import outline_of
from tasks.induce.trajectories.record import Action

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

T = TypeVar("T")
RESET, STATE = "/.skillery/reset", "/.skillery/state"
_HOST = re.compile(r"[\w.:-]+")
_SECONDS, _MOST_BYTES = 10.0, 8 << 20  # of one answer
_SLACK = 90.0  # seconds: what is stamped may be written to the minute, or by a clock that is a little off
_LATEST = 1e15  # milliseconds since 1970: a larger number, of any size, is no time
_DATE = len("2026-01-31")


class ApplicationUnusable(Exception):
    """The application cannot be used; the text says why."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class WebApplication:
    """An application that is reset by `POST /.skillery/reset`, and says its state at `GET /.skillery/state`.

    `url` is the address of its first page; both paths are those of the same host and port. Raises
    `ApplicationUnusable` if that is no address; both methods, if there is no answer of a status of 200 to
    299, or no JSON.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self.host = (parts.port, parts.hostname or "")[1]
        except ValueError:
            self.host = ""
        if not self.host or parts.scheme not in {"http", "https"} or not _HOST.fullmatch(self.host):
            msg = f"{url!r}: give the address of a web application, as http://127.0.0.1:8000/"
            raise ApplicationUnusable(msg)
        self.url, self._began = url, 0.0
        self._opener = build_opener(ProxyHandler({}), _NoRedirects)

    def reset(self) -> None:
        """Set the application back to where every run begins."""
        self._began = time.time()
        self._ask("POST", RESET)

    def digest(self) -> str:
        """Return a digest of its state, with `time` for the times of the run since the reset."""
        try:
            state = without_times(json.loads(self._ask("GET", STATE)), self._began, time.time())
        except (ValueError, RecursionError):
            raise ApplicationUnusable(f"{self.url}: GET {STATE} must answer with JSON") from None
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()

    def _ask(self, method: str, path: str) -> bytes:
        asked = Request(urljoin(self.url, path), b"" if method == "POST" else None, method=method)  # noqa: S310
        try:
            with self._opener.open(asked, timeout=_SECONDS) as answer:
                body = bytes(answer.read(_MOST_BYTES + 1))
        except HTTPError as error:
            said = f"answers {method} {path} with {error.code}; tasks/induce/README.md says what it must"
            raise ApplicationUnusable(f"{self.url} {said}") from None
        except OSError as error:
            msg = f"{self.url} does not answer {method} {path}: {error}; start it first"
            raise ApplicationUnusable(msg) from None
        if len(body) > _MOST_BYTES:
            raise ApplicationUnusable(f"{self.url} answers with more than {_MOST_BYTES:,} bytes")
        return body


def without_times(value: Any, begin: float, end: float) -> Any:  # noqa: ANN401
    """Return a value of JSON with `time` for each time at which a run took place.

    A time is a text of ISO 8601 with a date and an hour, or a number of seconds or milliseconds since 1970,
    that lies in the run, give or take 90 s. Other times are data: a date that somebody chose is what a run
    must do again.
    """
    if isinstance(value, dict):
        return {name: without_times(each, begin, end) for name, each in value.items()}
    if isinstance(value, list):
        return [without_times(each, begin, end) for each in value]
    is_of_run = any(begin - _SLACK <= time <= end + _SLACK for time in _times(value))
    return "time" if is_of_run else value


def _times(value: object) -> tuple[float, ...]:
    """Return what a value may be as a time, in seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST:
        return value, value / 1000
    if not isinstance(value, str) or len(value) <= _DATE:
        return ()
    try:
        time = datetime.fromisoformat(value)
        # One that names no zone may be of this machine's, or of none.
        return time.timestamp(), time.replace(tzinfo=time.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return ()


PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FOCUS = ":focus, body"  # the last of these has the keyboard
_CALM, _LONG_CALM = 0.05, 0.2  # seconds without a request: after an action, after a run
_OPEN_ENDED = frozenset({"eventsource", "ping", "websocket"})  # requests that nobody waits for the end of
_ID = re.compile(r"\A\s*+\[[^\]\s]++\] ")
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
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
    """A page of a run, whose time begins with it; all methods raise `PageBroken`, also when it is over."""

    def __init__(self, page: Page, limits: Limits) -> None:
        self._page, self._limits = page, limits
        self._end = time.monotonic() + limits.run
        self._under_way, self._begun = set[Any](), 0
        self._ids: Mapping[str, object] = {}
        page.on("request", self._begin)
        page.on("requestfinished", self._finish)
        page.on("requestfailed", self._finish)

    def _begin(self, request: Any) -> None:  # noqa: ANN401 (Playwright's, an extra)
        if request.resource_type not in _OPEN_ENDED:
            self._begun += 1
            self._under_way.add(request)

    def _finish(self, request: Any) -> None:  # noqa: ANN401 (as above)
        self._under_way.discard(request)

    def open(self, url: str) -> None:
        """Go to an address."""
        with self._in_time() as ms:
            self._page.goto(url, timeout=ms)

    def settle(self, calm: float = _LONG_CALM) -> None:
        """Wait until no request was under way for so many seconds; those that take too long are let be."""
        with self._in_time() as ms:
            end = time.monotonic() + ms / 1000
            while time.monotonic() < end:
                begun = self._begun
                self._page.wait_for_timeout(1000 * calm)
                if not self._under_way and self._begun == begun:
                    return
            self._under_way.clear()

    def look(self, read: Callable[[str], T], is_found: Callable[[T], bool] = lambda _: True) -> T:
        """Return what is read off the page's outline, as soon as it is what is looked for.

        Where it is not for `Limits.lacking` seconds after the page has settled, the page lacks it, and what
        was read last is returned.
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
        """Do an action on the page that was looked at last."""
        name, given = action.name, action.args
        if name not in _ACTIONS:
            raise PageBroken(f"{name} is no action in a browser: there are {', '.join(_ACTIONS)}")
        wanted, act = _ACTIONS[name]
        if set(given) != set(wanted) or not all(isinstance(given[each], str) for each in wanted):
            msg = f"{name} takes {' and '.join(wanted)} as texts, and is given {dict(given)!r:.120}"
            raise PageBroken(msg)
        on = self._page.locator(_FOCUS).last
        if ELEMENT in wanted:
            # Only an id of the outline is put into the locator: nothing that was recorded is a selector.
            if given[ELEMENT] not in self._ids:
                raise PageBroken(f"{name} is on {given[ELEMENT]!r:.60}, which is no element of the page")
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
    """Open an address in a context of its own: no downloads, pop-ups, permissions and service workers."""
    context: Any = browser.new_context(accept_downloads=False, permissions=[], service_workers="block")
    try:
        page = LivePage(context.new_page(), limits)
        context.on("page", lambda other: other.close())
        page.open(url)
        yield page
    finally:
        context.close()


class PagesOfApplication:
    """Answers what `CommandEnvironment` asks, in pages of an application."""

    def __init__(self, browser: Browser, application: WebApplication) -> None:
        self._browser, self._application, self._limits = browser, application, Limits()
        self._held = ExitStack()
        self._page: LivePage | None = None

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a line; raises `ApplicationUnusable`."""
        if asked["op"] == "digest":
            return {"digest": self._application.digest()}
        try:
            return {"observation": self._seen(asked), "error": None, "pages": True}
        except PageBroken as reason:
            return {"observation": "", "error": str(reason), "pages": True}

    def _seen(self, asked: Mapping[str, Any]) -> str:
        """Do what is asked; return the page on which an action is done, or that is waited for."""
        if asked["op"] == "reset":
            self._held.close()
            self._application.reset()
            opened = opened_page(self._browser, self._application.url, self._limits)
            self._page = self._held.enter_context(opened)
            return ""
        if self._page is None:
            raise PageBroken("there is no page before a reset")
        if asked["op"] == "page":
            self._page.settle()
            return self._page.look(_elements, lambda seen: asked["until"] in (None, seen))
        args, on = dict(asked["action"]["args"]), asked.get("on")
        seen, element = self._page.look(
            lambda text: (_elements(text), outline_of(text).find(*on) if on else None),
            lambda found: not on or found[1] is not None,
        )
        if on and element is None:
            raise PageBroken("the page has no {} {!r} with the ordinal {}".format(*on))
        self._page.do(
            Action(asked["action"]["name"], {**args, ELEMENT: element.element_id} if element else args)
        )
        return seen


def _elements(outline: str) -> str:
    """Return the elements of an outline, with their states, without ids and times of the day."""
    lines = (line for line in outline.split("\n") if _ID.match(line))
    return "\n".join(_CLOCK.sub("time", _ID.sub("", line)) for line in lines)


@contextmanager
def launched(host: str, program: str | None = None) -> Iterator[Browser]:
    """Start a Chromium without windows that finds one host; raises `ApplicationUnusable`."""
    try:
        from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415 (an extra)
    except ImportError:
        msg = "replay in a browser needs Playwright: pip install '.[browser]' in Skillery's folder"
        raise ApplicationUnusable(msg) from None
    tried = (program,) if program else PROGRAMS
    path = next((path for path in map(shutil.which, tried) if path), None)
    if path is None:
        msg = f"there is no {', '.join(tried)}: install Chromium, or name it with --chromium"
        raise ApplicationUnusable(msg)
    known = " , ".join(f"EXCLUDE {name}" for name in dict.fromkeys((*_LOOPBACK, host)))
    arguments = [  # Playwright's routing sees no redirects
        f"--host-resolver-rules=MAP * ~NOTFOUND , {known}",
        "--no-proxy-server",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=path, args=arguments,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home},
                chromium_sandbox=os.geteuid() != 0,  # Chromium has none for root
            )  # fmt: skip
        except Error as error:
            # What the browser itself says stands in Playwright's log, its last words last.
            log = error.message.strip().splitlines()
            said = [line for line in log if "[err]" in line] or log[:1]
            msg = f"{path} cannot be started: {said[-1].rpartition('[err]')[2].strip()}"
            raise ApplicationUnusable(msg) from error
        with browser:
            yield browser


def main() -> None:
    """Answer lines until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url", help="the address of the application's first page")
    parser.add_argument("--chromium", metavar="PROGRAM", help="none: the first that is found on PATH")
    given = parser.parse_args()
    try:
        application = WebApplication(given.url)
        with launched(application.host, given.chromium) as browser:
            session = PagesOfApplication(browser, application)
            for line in sys.stdin:
                sys.stdout.write(json.dumps(session.answer(json.loads(line))) + "\n")
                sys.stdout.flush()
    except ApplicationUnusable as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main()
