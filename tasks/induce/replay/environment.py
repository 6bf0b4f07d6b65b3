"""An environment behind a command, a process that is asked lines of JSON: reset, step, page, digest, score.

The process runs without a shell, with limits of time and size, and is ended in any case.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from storage.errors import EnvironmentStopped, EnvironmentUnusable, WrongInput
from tasks.induce.trajectories.cleaning import parsed
from tasks.induce.trajectories.outline import Element
from tasks.induce.trajectories.record import Action

SECONDS, MOST_BYTES = 30.0, 8 << 20  # of one answer
_PIECE = 1 << 16  # bytes read at once
_WORDS = 300  # bytes of the last error output that a message shows
_SHOWN = 80  # bytes or characters of an answer that a message shows
_GLANCE = 0.5  # seconds after which it is asked again how many are left
_END = 1.0  # seconds in which a process may end in order
_RUNNING: set[int] = set()  # ids of processes, each of which leads a session


def kill_all() -> None:
    """Kill what still runs, with all that it started: for a command that ends without unwinding."""
    for process_id in list(_RUNNING):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process_id, signal.SIGKILL)


class LineProcess:
    """A command that answers each line on its standard input with one line.

    It is started without a shell and sees PATH and an empty HOME of its own, nothing else of this process's
    environment, unless it is given one.

    Args:
        command: The command line, quoted as for a shell.
        folder: The folder in which it runs.
        seconds, most_bytes: The longest time and the greatest size of one answer.
        variables: The environment that it sees instead.
        left: Tells the seconds that are left for all answers; it is asked while one is waited for.

    Raises:
        WrongInput: The command line cannot be read, or the folder is not there.
        EnvironmentUnusable: The command cannot be started.
    """

    def __init__(
        self, command: str, folder: Path, seconds: float = SECONDS, most_bytes: int = MOST_BYTES,
        variables: Mapping[str, str] | None = None, left: Callable[[], float] = lambda: float("inf"),
    ) -> None:  # fmt: skip
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise WrongInput(f"{command!r} is no command line: {error}") from error
        if not words:
            raise WrongInput("the command of an environment is empty")
        if not folder.is_dir():
            raise WrongInput(f"{folder}: there is no such folder to run {command!r} in")
        self.command, self._seconds, self._most_bytes, self._left = command, seconds, most_bytes, left
        self._home = tempfile.TemporaryDirectory(prefix="skillery-", ignore_cleanup_errors=True)
        own = variables or {"PATH": os.environ.get("PATH", os.defpath), "HOME": self._home.name}
        try:
            # Ctrl-C interrupts the main thread alone: it would not learn the id of what it just started.
            with ThreadPoolExecutor(1) as starter:
                self._process = starter.submit(_begun, words, folder, own).result()
        except BaseException as error:
            self._home.cleanup()
            if not isinstance(error, OSError | ValueError):
                raise
            raise EnvironmentUnusable(command, "start", f"cannot be started: {error}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr  # noqa: S101, PT018 (pipes)
        self._in, self._out, self._err = self._process.stdin, self._process.stdout, self._process.stderr
        self._last_words = b""
        self._threads = [self._started(self._listen)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it started; again and again does no harm."""
        if self._in.closed:
            return
        self._in.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _RUNNING.discard(self._process.pid)
        self._process.wait()
        for thread in self._threads:
            thread.join(_END)
        if not any(thread.is_alive() for thread in self._threads):  # else somebody else still holds the pipe
            self._out.close()
            self._err.close()
        self._home.cleanup()

    def ask(self, line: str) -> str:
        """Return the answer to a line; after an error the process is ended.

        Raises:
            EnvironmentStopped: The process ended, or did not answer in time.
            EnvironmentUnusable: The answer is too large, is more than one line, or is no UTF-8.
        """
        if self._in.closed:
            raise EnvironmentStopped(self.command, "ended", "is ended already; start it anew")
        answers = queue.SimpleQueue[str | Exception]()
        self._threads[1:] = [self._started(self._exchange, f"{line}\n".encode(), answers)]
        try:
            answer = self._waited(answers)
            if isinstance(answer, Exception):
                raise answer
        except queue.Empty:
            self.close()
            late = f"gave no answer within {min(self._seconds, max(self._left(), 0)):g} s"
            raise EnvironmentStopped(self.command, "time", late) from None
        except BaseException:
            self.close()
            raise
        return answer

    def _waited(self, answers: queue.SimpleQueue[str | Exception]) -> str | Exception:
        """Return the answer; raises `queue.Empty` if it does not come in time."""
        until = time.monotonic() + self._seconds
        while (left := min(until - time.monotonic(), self._left())) > 0:
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=min(left, _GLANCE))
        raise queue.Empty

    def _started(self, work: Callable[..., None], *given: object) -> threading.Thread:
        # A daemon: what it waits for may be held open by a process that got away.
        thread = threading.Thread(target=work, args=given, daemon=True)
        thread.start()
        return thread

    def _listen(self) -> None:
        while piece := self._err.read(_PIECE):
            self._last_words = (self._last_words + piece)[-_WORDS:]

    def _exchange(self, asked: bytes, answers: queue.SimpleQueue[str | Exception]) -> None:
        try:
            answers.put(self._answered(asked))
        except Exception as error:  # is raised to whom asked
            answers.put(error)

    def _answered(self, asked: bytes) -> str:
        ready = select.poll()  # unlike `select` it takes descriptors above 1,023
        ready.register(self._out, select.POLLIN)
        if ready.poll(0) and (said := self._read()):
            shown = said[:_SHOWN].decode(errors="replace").strip()
            raise EnvironmentUnusable(self.command, "answer", f"wrote {shown!r} before it was asked")
        with contextlib.suppress(BrokenPipeError):  # it has ended; how, its output tells
            while asked:
                asked = asked[self._in.write(asked) or 0 :]
        got = b""
        while b"\n" not in got:
            got += self._read()
            if len(got) > self._most_bytes:
                detail = f"answered with more than {self._most_bytes:,} bytes"
                raise EnvironmentUnusable(self.command, "size", detail)
        line, _, more = got.partition(b"\n")
        if more:
            raise EnvironmentUnusable(self.command, "answer", "answered with more than one line")
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise EnvironmentUnusable(self.command, "answer", "answered with no UTF-8") from None

    def _read(self) -> bytes:
        """Return what it writes next; raises `EnvironmentStopped` if it has ended."""
        if piece := self._out.read(_PIECE):
            return piece
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        self._threads[0].join(_END)
        words = self._last_words.decode(errors="replace").strip()
        said = f"; its last error output: {words}" if words else ""
        how = f"ended with exit code {self._process.returncode} before it answered{said}"
        raise EnvironmentStopped(self.command, "ended", how)


def _begun(words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        words, cwd=folder, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, bufsize=0, start_new_session=True,
    )  # fmt: skip
    _RUNNING.add(process.pid)
    return process


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """What an action gave: the observation after it, and what went wrong, None if nothing.

    Where there are `pages`, the observation is the page before it: its elements, a line each.
    """

    observation: str
    error: str | None
    pages: bool = False

    def result(self, name: str) -> Any:  # noqa: ANN401
        """Return what the action of that name gave, as cleaning reads it; None of pages and of failures."""
        nothing = self.pages or self.error is not None
        return None if nothing else parsed(self.observation.removeprefix(f"{name} returned: "))


class CommandEnvironment:
    """An environment that a process holds.

    It is asked `{"op": "reset", "domain"}`, `{"op": "step", "action": {"name", "args"}}`, `{"op": "digest"}`
    and, where agents are measured, `{"op": "score"}`, and answers `{"observation", "error"}`, `{"digest"}`
    and `{"score"}`. One that answers a reset with
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

    def score(self) -> float:
        """Return how far what was asked for is done, from 0 to 1."""
        asked = {"op": "score"}
        score = self._ask(asked).get("score")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise self._nonsense(asked, "no score that is a number from 0 to 1")
        return float(score)

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
