"""An environment behind a command, a process that is asked lines of JSON: reset, step, page and digest.

The process runs without a shell, with limits of time and size, and is ended in any case.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.trajectories.cleaning import parsed
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action

SECONDS, MOST_BYTES = 30.0, 8 << 20  # of one answer
_PIECE = 1 << 16  # bytes read at once
_WORDS = 300  # bytes of the last error output that a message shows
_SHOWN = 80  # bytes or characters of an answer that a message shows
_END = 1.0  # seconds in which a process may end in order


class LineProcess:
    """A command that answers each line on its standard input with one line.

    It is started without a shell and sees PATH and an empty HOME of its own, nothing else of this process's
    environment.

    Args:
        command: The command line, quoted as for a shell.
        folder: The folder in which it runs.
        seconds: The longest time of one answer.
        most_bytes: The greatest size of one answer.

    Raises:
        WrongInput: The command line cannot be read, or the folder is not there.
        EnvironmentUnusable: The command cannot be started.
    """

    def __init__(
        self, command: str, folder: Path, seconds: float = SECONDS, most_bytes: int = MOST_BYTES
    ) -> None:
        words = _words(command)
        if not folder.is_dir():
            msg = f"{folder}: there is no such folder to run {command!r} in"
            raise WrongInput(msg)
        self.command = command
        self._seconds, self._most_bytes = seconds, most_bytes
        self._home = tempfile.TemporaryDirectory(prefix="skillery-", ignore_cleanup_errors=True)
        self._last_words = bytearray()
        try:
            self._process = subprocess.Popen(
                words, cwd=folder, env={"PATH": os.environ.get("PATH", os.defpath), "HOME": self._home.name},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._home.cleanup()
            raise EnvironmentUnusable(command, "start", f"cannot be started: {error}") from error
        self._in, self._out, self._err = (
            stream.fileno()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr)
            if stream is not None
        )
        os.set_blocking(self._in, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it started; again and again does no harm."""
        process = self._process
        if process.stdin is None or process.stdin.closed:
            return
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        self._home.cleanup()

    @property
    def output(self) -> int:
        """The descriptor of its standard output, to be waited for."""
        return self._out

    def ask(self, line: str) -> str:
        """Return the answer to a line; after an error the process is ended.

        Raises:
            EnvironmentStopped: The process ended, or did not answer in time.
            EnvironmentUnusable: The answer is too large, is more than one line, or is no UTF-8.
        """
        try:
            return self._exchange(f"{line}\n".encode())
        except BaseException:
            self.close()
            raise

    def _exchange(self, asked: bytes) -> str:
        if self._process.stdin is None or self._process.stdin.closed:
            raise EnvironmentStopped(self.command, "ended", "is ended already; start it anew")
        end, got = time.monotonic() + self._seconds, bytearray()
        with selectors.DefaultSelector() as events:
            events.register(self._in, selectors.EVENT_WRITE)
            for stream in (self._out, self._err):
                events.register(stream, selectors.EVENT_READ)
            while b"\n" not in got:
                left = end - time.monotonic()
                ready = events.select(left) if left > 0 else []
                if not ready and time.monotonic() >= end:
                    raise EnvironmentStopped(
                        self.command, "time", f"gave no answer within {self._seconds:g} s"
                    )
                # What it says is read first: it must not speak before it is asked.
                for key, _ in sorted(ready, key=lambda each: each[0].fd == self._in):
                    asked = self._progress(key.fd, asked, got, events)
        return self._line(got)

    def _progress(self, stream: int, asked: bytes, got: bytearray, events: selectors.BaseSelector) -> bytes:
        """Write or read what one stream is ready for, and return what is still to be written."""
        if stream == self._in:
            try:
                asked = asked[os.write(stream, asked[:_PIECE]) :]
            except BlockingIOError:
                return asked
            except BrokenPipeError:
                asked = b""  # it has ended; how, its output tells
            if not asked:
                events.unregister(stream)
            return asked
        piece = os.read(stream, _PIECE)
        if stream == self._err:
            self._last_words = (self._last_words + piece)[-_WORDS:]
            if not piece:
                events.unregister(stream)
        elif not piece:
            raise self._ended()
        elif asked:
            said = piece[:_SHOWN].decode(errors="replace").strip()
            raise EnvironmentUnusable(self.command, "answer", f"wrote {said!r} before it was asked")
        else:
            got += piece
            if len(got) > self._most_bytes:
                raise EnvironmentUnusable(
                    self.command, "size", f"answered with more than {self._most_bytes:,} bytes"
                )
        return asked

    def _ended(self) -> EnvironmentStopped:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        os.set_blocking(self._err, False)
        with contextlib.suppress(BlockingIOError):
            self._last_words = (self._last_words + os.read(self._err, _PIECE))[-_WORDS:]
        words = self._last_words.decode(errors="replace").strip()
        code = self._process.returncode
        said = f"; its last error output: {words}" if words else ""
        return EnvironmentStopped(
            self.command, "ended", f"ended with exit code {code} before it answered{said}"
        )

    def _line(self, got: bytearray) -> str:
        line, _, more = bytes(got).partition(b"\n")
        try:
            if not more:
                return line.decode()
        except UnicodeDecodeError:
            raise EnvironmentUnusable(self.command, "answer", "answered with no UTF-8") from None
        raise EnvironmentUnusable(self.command, "answer", "answered with more than one line")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        msg = f"{command!r} is no command line: {error}"
        raise WrongInput(msg) from error
    if not words:
        msg = "the command of an environment is empty"
        raise WrongInput(msg)
    return words


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """What an action gave: the observation after it, and what went wrong, None if nothing.

    Where there are `pages`, the observation is the page before it: its elements, a line each.
    """

    observation: str
    error: str | None
    pages: bool = False

    def result(self, name: str) -> Any:  # noqa: ANN401
        """Return what the action of that name gave, as cleaning reads it; None where it failed."""
        return None if self.error is not None else parsed(self.observation.removeprefix(f"{name} returned: "))


class CommandEnvironment:
    """An environment that a process holds.

    It is asked `{"op": "reset", "domain"}`, `{"op": "step", "action": {"name", "args"}}` and
    `{"op": "digest"}`, and answers `{"observation", "error"}` and `{"digest"}`. One that answers a reset with
    `"pages": true` too is one of pages: of a step it is told the element by `"on": [role, label, ordinal]`,
    and it is asked `{"op": "page", "until"}` for what is seen, which may be waited for.
    """

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    @property
    def command(self) -> str:
        """The command, as the operator wrote it."""
        return self._process.command

    def reset(self, domain: str) -> LiveAnswer:
        """Begin a domain anew."""
        return self._answer({"op": "reset", "domain": domain})

    def step(self, action: Action, on: Element | None = None) -> LiveAnswer:
        """Do an action, on an element of a page."""
        asked = {"op": "step", "action": {"name": action.name, "args": dict(action.args)}}
        return self._answer({**asked, "on": [on.role, on.label, on.ordinal]} if on else asked)

    def page(self, until: str | None) -> LiveAnswer:
        """Look at a page, until it is the one that is waited for."""
        return self._answer({"op": "page", "until": until})

    def digest(self) -> str:
        """Return what tells the state of the environment from others."""
        asked = {"op": "digest"}
        digest = self._ask(asked).get("digest")
        if not isinstance(digest, str):
            raise self._nonsense(asked, "no digest that is a text")
        return digest

    def _answer(self, asked: Mapping[str, object]) -> LiveAnswer:
        found = self._ask(asked)
        observation, error = found.get("observation"), found.get("error")
        if not isinstance(observation, str) or not isinstance(error, str | None):
            raise self._nonsense(asked, "no observation that is a text with an error that is one or null")
        return LiveAnswer(observation, error, found.get("pages") is True)

    def _ask(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        line = self._process.ask(json.dumps(asked))
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise self._nonsense(asked, f"{line[:_SHOWN]!r}, which is no JSON") from None
        if not isinstance(found, dict):
            raise self._nonsense(asked, f"{line[:_SHOWN]!r}, which is no object")
        return found

    def _nonsense(self, asked: Mapping[str, object], found: str) -> EnvironmentUnusable:
        self._process.close()
        return EnvironmentUnusable(self.command, "answer", f"answered {asked['op']} with {found}")
