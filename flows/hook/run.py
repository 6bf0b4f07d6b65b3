"""Runs the hook: one event on standard input, an answer in the host's form, or nothing, always in time.

No module that this one loads takes more than some milliseconds: a host waits for it at every prompt.
"""

from __future__ import annotations

import contextlib
import getopt
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.hook.facts import LEAST_FIT, MOST, Json, Told, facts_of
from flows.hook.prompt import AGENTS, EVENTS, MOST_BYTES, Nothing, Prompt, read_prompt

if TYPE_CHECKING:
    from tasks.retrieve.served_index import ServedIndex

HOOK = "skillery-hook"  # its user agent
SERVING = "state/serving.json"  # which server answers for a root
_SESSIONS, _MARKS = 200, 200  # kept of each, at most
_LONGEST = 60.0  # seconds; hosts wait no longer
_PLACES = ("CLAUDE_PLUGIN_DATA", "PLUGIN_DATA")


class Options(NamedTuple):
    """The options of the command; `url` None: that of the server that the root names, if one runs."""

    agent: str
    url: str | None = None
    root: str = ""
    min_fit: float | None = None
    budget: int = 400
    timeout: float = 2.0


def main(arguments: list[str]) -> None:
    """Run the command by its arguments; whatever goes wrong, it ends with 0, and says why on stderr."""
    try:
        answer_prompt(parse(arguments))
        sys.stdout.flush()
    except (getopt.GetoptError, ValueError) as error:
        sys.stderr.write(f"skillery hook: {error}: see `skillery hook --help`\n")
    except Exception as error:  # a host must never see a failure
        with contextlib.suppress(Exception):
            sys.stderr.write(f"skillery hook: nothing told: {str(error) or type(error).__name__}\n")


def parse(arguments: list[str]) -> Options:
    """Return the options of the command; raises `GetoptError` or `ValueError` saying what is wrong."""
    names = ["agent=", "url=", "root=", "min-fit=", "budget=", "timeout="]
    pairs, rest = getopt.gnu_getopt(arguments, "", names)
    if rest:
        raise ValueError(f"{rest[0]!r} is no option")
    given = {name.strip("-").replace("-", "_"): value for name, value in pairs}
    if given.get("agent") not in AGENTS:
        raise ValueError(f"--agent must be one of {', '.join(AGENTS)}")
    kinds = {"min_fit": float, "budget": int, "timeout": float}
    options = Options(**{name: kinds.get(name, str)(value) for name, value in given.items()})
    if not 0 < options.timeout <= _LONGEST:  # nor is it no number
        raise ValueError(f"--timeout must be above 0, and at most {_LONGEST:g} s")
    return options


def answer_prompt(options: Options) -> None:
    """Answer one event: a process of its own does it, and is ended where it takes longer than it may."""
    ends = time.monotonic() + options.timeout
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _answer_into(writing, options, ends)
    os.close(writing)
    answer = _read_until(reading, ends)
    if answer is None:
        sys.stderr.write(f"skillery hook: no answer within --timeout {options.timeout:g} s\n")
    elif answer.endswith(b"\n"):  # what a process wrote that failed half way is no answer
        sys.stdout.write(answer.decode().rstrip())
        sys.stdout.flush()
    while not os.waitpid(child, os.WNOHANG)[0]:  # it notes what was asked
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _read_until(reading: int, ends: float) -> bytes | None:
    """Return all that is written until the other end is closed; None: it was not closed in time."""
    parts: list[bytes] = []
    while select.select([reading], [], [], max(0.0, ends - time.monotonic()))[0]:
        if not (part := os.read(reading, 65_536)):
            return b"".join(parts)
        parts.append(part)
    return None


def _answer_into(writing: int, options: Options, ends: float) -> None:
    """Write the answer, in the process that may fail; it ends here."""
    later: list[Callable[[], None]] = []
    try:
        event = sys.stdin.buffer.read(MOST_BYTES)
        prompt = read_prompt(options.agent, event)
        given = _Given(options.agent, prompt.session)
        if (told := _told(options, prompt, given.marks, ends, later)) is None:
            raise Nothing("no skill fits, or all that do were told of before")
        given.add(told.marks)
        form = {"hookEventName": EVENTS[options.agent], "additionalContext": told.text}
        os.write(writing, json.dumps({"hookSpecificOutput": form}).encode() + b"\n")
    except BaseException as error:  # a host must never see it as a failure
        said = str(error).strip().splitlines() or [type(error).__name__]
        sys.stderr.write(f"skillery hook: nothing told: {said[0][:300]}\n")
    finally:
        with contextlib.suppress(BaseException):
            os.close(writing)
            for work in later:
                work()
            sys.stderr.flush()
        os._exit(0)


def _told(
    options: Options, prompt: Prompt, given: frozenset[str], ends: float, later: list[Callable[[], None]]
) -> Told | None:
    url = options.url or serving_at(options.root)
    asked = {"q": prompt.text, "k": MOST, "explain": True}
    asked["min_fit"] = LEAST_FIT if options.min_fit is None else options.min_fit
    found, ask = None, _alone(options.root, later)
    if url is not None:
        server = _Server(url, ends)
        try:
            found, ask = server.ask("search", **asked), server.ask
        except ConnectionRefusedError:  # the server of a root may have ended without a word
            if options.url:
                raise
    found = found or ask("search", **asked)

    def page(doc_id: str, budget: float) -> Json:
        return ask("page", doc_id=doc_id, q=prompt.text, budget=int(budget))

    return facts_of(found, options.budget, given, page)


def _alone(root: str, later: list[Callable[[], None]]) -> Callable[..., Json]:
    """Return what answers as a server does, in this process; the index is loaded by the first question.

    What was asked is written by what `later` holds, when the answer is given.
    """

    def ask(name: str, *, q: str, **how: Any) -> Json:  # noqa: ANN401 (of `search` or `page`)
        from flows.commands.queries import open_index  # noqa: PLC0415
        from flows.commands.usage import open_log  # noqa: PLC0415
        from flows.settings import load_settings  # noqa: PLC0415
        from storage.root import Root  # noqa: PLC0415

        settings = load_settings()
        where = Root(root or settings.root)
        if not opened:
            opened.append(open_index(where, settings))
        log = open_log(where, settings)
        if name == "search":
            found = opened[0].search(q, how.pop("k"), **how)
            nothing = found["nothing_fits"]
            ids, fits = [row["doc_id"] for row in found["results"]], None if nothing is None else not nothing
        else:
            found = opened[0].page(how["doc_id"], q, budget=how["budget"], method="facets")
            ids, fits = [how["doc_id"]], None
        told = {"fits": fits, "milliseconds": found["took_ms"], "version": found["index_version"]}
        log.note("hook", name, ids, query=q, **told)
        later.append(log.flush)
        return found

    opened: list[ServedIndex] = []
    return ask


def serving_at(root: str) -> str | None:
    """Return the address of the server that runs for a root, None if the root names none that lives.

    The prompt and the token go there: it must be on this machine, and this user must have said so.
    """
    try:
        with open(
            os.path.join(root or os.environ.get("SKILLERY_ROOT", "data"), SERVING), encoding="utf-8"
        ) as file:
            held = json.load(file)
            own = os.fstat(file.fileno()).st_uid == os.getuid()
        url, pid = str(held["url"]), int(held["pid"])
        if not (own and pid > 0 and _is_loopback(url)):
            return None
        os.kill(pid, 0)
        return url
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _is_loopback(url: str) -> bool:
    """Tell whether an address is one of http on this machine."""
    from ipaddress import ip_address  # noqa: PLC0415 (a command or chat asks nothing)
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)


class _Server:
    """A server that runs; asked without `http.client`, whose import takes a third of the hook's time."""

    def __init__(self, url: str, ends: float) -> None:
        from urllib.parse import urlsplit  # noqa: PLC0415 (a command or chat asks nothing)

        self._url, self._ends = urlsplit(url), ends

    def ask(self, name: str, **parameters: object) -> Json:
        """Return what the server answers; raises `Nothing` where that is an error, else as `socket`."""
        from urllib.parse import urlencode  # noqa: PLC0415

        path = f"{self._url.path.rstrip('/')}/api/{name}?{urlencode(parameters)}"
        host = self._url.netloc.rpartition("@")[2]
        lines = [f"GET {path} HTTP/1.0", f"host: {host}", "connection: close", "accept: application/json"]
        lines.append(f"user-agent: {HOOK}")
        if token := os.environ.get("SKILLERY_SERVE_TOKEN"):
            lines.append(f"authorization: Bearer {token}")
        head, _, body = self._exchanged("\r\n".join([*lines, "", ""]).encode()).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/"):
            raise Nothing("what listens there is no server of HTTP")
        status, found = head.split()[1].decode(), json.loads(body)
        if status != "200":
            raise Nothing(f"the server answers {status}: {found.get('error')}")
        return found  # type: ignore[no-any-return]

    def _exchanged(self, request: bytes) -> bytes:
        from socket import create_connection  # noqa: PLC0415

        safe = self._url.scheme == "https"
        host: Any = self._url.hostname or ""
        # As bytes, since to spell a name for the network takes as long as the connection.
        place = (host.encode() if host.isascii() else host, self._url.port or (443 if safe else 80))
        line = create_connection(place, max(0.05, self._ends - time.monotonic()))
        with line:
            if safe:
                from ssl import create_default_context  # noqa: PLC0415

                line = create_default_context().wrap_socket(line, server_hostname=self._url.hostname)
            line.sendall(request)
            return b"".join(iter(lambda: line.recv(65_536), b""))


class _Given:
    """What a session was told before: a file of marks, a line each; none where a session has no id."""

    def __init__(self, agent: str, session: str) -> None:
        from hashlib import sha256  # noqa: PLC0415

        place = next((p for name in _PLACES if (p := os.environ.get(name))), None)
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        self._folder = os.path.join(place or os.path.join(home, "skillery"), "hook")
        self._file = None
        self.marks: frozenset[str] = frozenset()
        if session:
            name = sha256(f"{agent} {session}".encode("utf-8", "replace")).hexdigest()[:32]
            self._file = os.path.join(self._folder, name)
            try:
                with open(self._file, encoding="utf-8", errors="replace") as file:
                    self.marks = frozenset(line.rstrip("\n") for line in file)
            except FileNotFoundError:
                pass
        if len(self.marks) > _MARKS:
            raise Nothing(f"the session was told of {_MARKS} skills before")

    def add(self, marks: tuple[str, ...]) -> None:
        """Add what is told now; the sessions that were told something longest ago are dropped."""
        if self._file is None:
            return
        if not os.path.exists(self._file):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            by_age = sorted(os.scandir(self._folder), key=lambda entry: entry.stat().st_mtime)
            for entry in by_age[: max(0, len(by_age) + 1 - _SESSIONS)]:
                os.unlink(entry.path)
        # One short write at the end of a file is whole, also where two hosts write at once.
        with open(self._file, "ab", buffering=0) as file:
            file.write("".join(f"{mark}\n" for mark in marks).encode())
