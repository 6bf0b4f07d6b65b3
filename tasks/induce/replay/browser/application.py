"""The web application in which trajectories are replayed: its address, its reset, and its state."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.replay.browser.application_state import without_times

RESET, STATE = "/.skillery/reset", "/.skillery/state"
_HOST = re.compile(r"[\w.:-]+")
_PIECE = 1 << 16  # bytes read at once


class WebApplication:
    """An application that is reset by `POST /.skillery/reset`, and says its state at `GET /.skillery/state`.

    Args:
        url: The address of its first page; both paths are those of the same host and port.
        seconds: The longest time of one answer.
        most_bytes: The largest state.

    Raises:
        WrongInput: The address is none of a web application.
    """

    def __init__(self, url: str, seconds: float, most_bytes: int) -> None:
        self.url, self.spec = url, f"browser:{url}"
        try:
            parts = urlsplit(url)
            self._scheme, self.host, self._port = parts.scheme, parts.hostname or "", parts.port
        except ValueError:
            self._scheme = self.host = ""
        if self._scheme not in {"http", "https"} or not _HOST.fullmatch(self.host):
            msg = f"{self.spec}: give the address of a web application, as browser:http://127.0.0.1:8000/"
            raise WrongInput(msg)
        self._seconds, self._most_bytes = seconds, most_bytes
        self._began = 0.0

    def reset(self) -> None:
        """Set the application back to where every run begins.

        Raises:
            EnvironmentUnusable: It answers that it does not.
            EnvironmentStopped: It does not answer, or not in time.
        """
        self._began = time.time()
        self._ask("POST", RESET)

    def state(self) -> Any:  # noqa: ANN401
        """Return its state as JSON, with `time` for the times of the run since the reset.

        Raises:
            EnvironmentUnusable: What it answers is no JSON, or too large.
            EnvironmentStopped: It does not answer, or not in time.
        """
        body = self._ask("GET", STATE)
        try:
            return without_times(json.loads(body), self._began, time.time())
        except (ValueError, RecursionError):
            raise self._unusable("answer", f"GET {STATE} must answer with JSON") from None

    def _ask(self, method: str, path: str) -> bytes:
        with self._answered(method, path) as answer:
            body = self._read(answer)
        if answer.status // 100 != 2:
            detail = f"answers {method} {path} with {answer.status}; tasks/induce/README.md says what it must"
            raise self._unusable("answer", detail)
        return body

    @contextmanager
    def _answered(self, method: str, path: str) -> Iterator[HTTPResponse]:
        """Ask without a proxy, and without going where an answer points to."""
        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        connection = kind(self.host, self._port, timeout=self._seconds)
        try:
            connection.request(method, path, headers={"Accept": "application/json", "Content-Length": "0"})
            yield connection.getresponse()
        except TimeoutError:
            raise self._late(method, path) from None
        except (OSError, HTTPException) as error:
            detail = f"does not answer {method} {path}: {error or type(error).__name__}; start it first"
            raise EnvironmentStopped(self.spec, "ended", detail) from error
        finally:
            connection.close()

    def _read(self, answer: HTTPResponse) -> bytes:
        end, body = time.monotonic() + self._seconds, bytearray()
        while piece := answer.read1(_PIECE):
            body += piece
            if len(body) > self._most_bytes:
                raise self._unusable("size", f"answers with more than {self._most_bytes:,} bytes")
            if time.monotonic() > end:
                raise TimeoutError
        return bytes(body)

    def _late(self, method: str, path: str) -> EnvironmentStopped:
        return EnvironmentStopped(
            self.spec, "time", f"gave no answer to {method} {path} within {self._seconds:g} s"
        )

    def _unusable(self, reason: str, detail: str) -> EnvironmentUnusable:
        return EnvironmentUnusable(self.spec, reason, detail)
