"""Chromium: one that is on this machine, kept off other hosts, and driven by Playwright."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput

if TYPE_CHECKING:
    from playwright.sync_api import Browser

T = TypeVar("T")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Chromium:
    """A Chromium without windows, while its `with` block lasts.

    It sees PATH and an empty HOME of its own, nothing else of this process's environment, and it finds no
    host but this machine and the one named: neither by a name or an address, nor where an answer points to.
    Playwright holds an event loop in the thread that it is used in, where nothing else could have one.

    Args:
        host: The host of the application.
        program: The name or path of the program; None: the first of `PROGRAMS` on PATH.

    Raises:
        WrongInput: Playwright is not installed, or there is no such program.
        EnvironmentUnusable: It cannot be started.
    """

    def __init__(self, host: str, program: str | None = None) -> None:
        _require_playwright()
        self._program, self._host = _found(program), host
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._held = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._browser = self._thread.submit(self._start).result()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.submit(self._held.close).result()
        self._thread.shutdown()

    def do(self, work: Callable[[Browser], T]) -> T:
        """Return what a function of the browser returns, called in the browser's thread.

        Raises:
            EnvironmentStopped: The browser has ended.
        """
        try:
            found = self._thread.submit(work, self._browser).result()
        except Exception as error:
            self._require_running(error)
            raise
        self._require_running(None)
        return found

    def _require_running(self, error: Exception | None) -> None:
        if not self._browser.is_connected():
            raise EnvironmentStopped(
                self._program, "ended", "the browser has ended; run this again"
            ) from error

    def _start(self) -> Browser:
        from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415 (an extra)

        home = self._held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        playwright = self._held.enter_context(sync_playwright())
        try:
            browser = playwright.chromium.launch(
                executable_path=self._program,
                args=_arguments(self._host),
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home},
                chromium_sandbox=os.geteuid() != 0,  # Chromium has none for root
            )
        except Error as error:
            # What the browser itself says stands in Playwright's log, its last words last.
            log = error.message.strip().splitlines()
            said = [line for line in log if "[err]" in line] or log[:1]
            detail = f"cannot be started: {said[-1].rpartition('[err]')[2].strip()}"
            raise EnvironmentUnusable(self._program, "start", detail) from error
        self._held.callback(browser.close)
        return browser


def _arguments(host: str) -> list[str]:
    """Return what keeps Chromium off other hosts; Playwright's routing sees no redirects."""
    known = " , ".join(f"EXCLUDE {name}" for name in dict.fromkeys((*_LOOPBACK, host)))
    return [
        f"--host-resolver-rules=MAP * ~NOTFOUND , {known}",
        "--no-proxy-server",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]


def _require_playwright() -> None:
    if importlib.util.find_spec("playwright") is None:
        msg = "--verify browser: needs Playwright: pip install '.[browser]' in Skillery's folder"
        raise WrongInput(msg)


def _found(program: str | None) -> str:
    tried = (program,) if program else PROGRAMS
    found = next((path for path in map(shutil.which, tried) if path), None)
    if found is None:
        msg = f"there is no {', '.join(tried)}: install Chromium, or name it in SKILLERY_INDUCE_CHROMIUM"
        raise WrongInput(msg)
    return found
