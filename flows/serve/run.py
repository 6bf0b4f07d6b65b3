"""Runs the server: over HTTP, by one process or by workers at one address, or over standard input."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from tempfile import TemporaryDirectory
from typing import NoReturn

import anyio

from flows.commands.open_formats.json_log import set_up_log
from flows.hook.run import SERVING
from flows.serve.answers.service import ServeSettings, Service, load_serving
from flows.serve.gate import is_loopback, usable_token
from flows.settings import load_settings
from storage.errors import SkilleryError, WrongInput
from storage.folder import put_file, threads_of_process
from storage.root import Root
from tasks.retrieve.registry.indexes import normal_base

_ANY = ("0.0.0.0", "::")  # noqa: S104 (compared)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_YOUNG = 10.0  # seconds; a worker that fails sooner, or before any could answer, would do so for ever
_PATIENCE = 7.0  # seconds in which workers end; the server in each gives its answers 5
Begun = Callable[[], Callable[[], None]]
Answer = Callable[[socket.socket, Begun], None]
Say = Callable[[str], None]
# Not forked: the fork of a process with threads may wait for a lock for ever.
_SPAWN = multiprocessing.get_context("spawn")


def serve_http(
    root: Root, host: str, port: int, say: Say, public_url: str | None = None, workers: int = 1
) -> None:
    """Serve a root over HTTP until Ctrl-C; port 0 takes a free one, and `say` is told the address.

    `public_url` is the address of the registry, where that is not the one that a client asks at; of several
    `workers` each is a process that answers.

    Raises `WrongInput` if it may not, or cannot, listen there.
    """
    base, limits = None if public_url is None else normal_base(public_url), load_serving()
    require_token(host, limits)
    listening = listen(host, port)
    names = [*(limits.hosts or ()), *([] if is_loopback(host) else [host, socket.gethostname()])]
    shown, at = f"[{host}]" if ":" in host else host, listening.getsockname()[1]

    def begun() -> Callable[[], None]:
        withdraw = _tell_hooks(root, f"http://{'127.0.0.1' if host in _ANY else shown}:{at}")
        say(f"serving {root.uri} at http://{shown}:{at}: pages at /, MCP at /mcp, HTTP at /api, see /docs")
        return withdraw

    answer = partial(_answer, root.uri, names, base)
    if workers == 1:
        answer(listening, begun)
        return
    load_settings()  # what is wrong with them is told once
    serve_in_workers(workers, answer, listening, begun, say)


def _answer(uri: str, names: list[str], base: str | None, listening: socket.socket, begun: Begun) -> None:
    """Answer what comes to a socket until a signal; what `begun` returns is done at the end."""
    service = Service(Root(uri), load_settings(), load_serving())
    service.warm()
    # Loading these takes as long as opening the index, which goes on meanwhile.
    import uvicorn  # noqa: PLC0415

    from flows.serve.app import serving_config  # noqa: PLC0415

    _quiet()
    service.at_close(begun())
    uvicorn.Server(serving_config(service, names, base)).run(sockets=[listening])


def _tell_hooks(root: Root, url: str) -> Callable[[], None]:
    """Leave the address where hooks on this machine look for it; return what withdraws it."""
    held = {"url": url, "pid": os.getpid()}
    place = root.folder / SERVING

    def withdraw() -> None:
        with suppress(OSError, ValueError):
            if json.loads(place.read_bytes()) == held:  # no later server's
                place.unlink()

    with suppress(OSError):  # a root that may only be read is served all the same
        put_file(place, json.dumps(held).encode())
    return withdraw


def require_token(host: str, limits: ServeSettings) -> None:
    """Raise `WrongInput` if a token is too short, or missing where others than this machine can ask."""
    token = limits.token.get_secret_value()
    if token and not usable_token(token):
        raise WrongInput("SKILLERY_SERVE_TOKEN must have 16 or more ASCII characters, without spaces")
    if not token and not is_loopback(host):
        raise WrongInput(
            f"--host {host} can be reached from other machines: set SKILLERY_SERVE_TOKEN to a secret of "
            "16 or more characters, which they must send as a bearer token"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise `WrongInput` if it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # With its protocol: by it asyncio knows TCP, and sends what a client waits for at once.
        listening = socket.socket(*found[:3])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(2048)
    except OSError as error:
        msg = f"--host {host} --port {port}: cannot listen there ({error.strerror or error})"
        raise WrongInput(msg) from error
    listening.setblocking(False)
    return listening


def _quiet() -> None:
    """Let no request of a stranger write to the log; faults of ours still do."""
    # In JSON the log has its handler already.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    for name in ("uvicorn.error", "mcp"):
        logging.getLogger(name).setLevel(logging.ERROR)


def serve_stdio(root: Root) -> None:
    """Serve a root over MCP on standard input and output, until the input ends."""
    _quiet()
    service = Service(root, load_settings(), load_serving())
    service.warm()
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 (as above)

    from flows.serve.mcp_server import mcp_server  # noqa: PLC0415

    async def serve() -> None:
        server = mcp_server(service, shared=False)
        async with stdio_server() as (given, answers):
            await server.run(given, answers, server.create_initialization_options())

    try:
        anyio.run(serve)
    finally:
        service.close()


def serve_in_workers(
    count: int, answer: Answer, listening: socket.socket, begun: Begun, say: Say
) -> NoReturn:
    """Have worker processes answer, and start again those that end, until Ctrl-C or SIGTERM ends all.

    They share the cores, and what they count is added up (Prometheus' multiprocess mode).

    Args:
        count: Number of processes.
        answer: Answers what comes to a socket until SIGTERM, and calls what it is given once it can; it goes
            to another process.
        listening: The socket, which all take connections from.
        begun: Is called once one of them can answer; what it returns is done at the end.
        say: Is told which worker ended, and how.

    Raises:
        SystemExit: SIGTERM came, or a worker failed as it began.
    """
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads_of_process() // count))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with TemporaryDirectory(prefix="skillery-serve-") as figures, ExitStack() as at_end:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = figures
        at_end.callback(_end_all)
        ready = _SPAWN.Semaphore(0)  # an event's lock would stay with a worker that is killed in it
        start = partial(_started, answer, listening, say, ready)
        workers = {number: start() for number in range(count)}
        began, told = dict.fromkeys(workers, time.monotonic()), False
        while True:
            # Not without end: a signal that comes just before is seen afterwards.
            wait([worker.sentinel for worker in workers.values()], timeout=1 if told else 0.05)
            if not told and ready.acquire(block=False):
                at_end.callback(begun())
                told = True
            for number, worker in workers.items():
                if worker.exitcode is not None:
                    young = not told or time.monotonic() - began[number] < _YOUNG
                    _tell_end(number, worker, say, young=young)
                    workers[number], began[number] = start(), time.monotonic()


def _started(answer: Answer, listening: socket.socket, say: Say, ready: Semaphore) -> BaseProcess:
    worker = _SPAWN.Process(target=_work, args=(answer, listening, say, ready))
    # Before it can tell what to do no signal reaches it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return worker


def _tell_end(number: int, worker: BaseProcess, say: Say, *, young: bool) -> None:
    """Say how a worker ended, and that another comes; end with the code of one that failed as it began."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 (loads what few runs need)

    code = worker.exitcode or 0
    if young:
        if code > 0:
            sys.exit(code)
        time.sleep(1)  # what killed it, as for want of memory, may do so again
    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    say(f"worker {number + 1} (process {worker.pid}) ended ({how}): another one is started")


def _end_all() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    workers, until = multiprocessing.active_children(), time.monotonic() + _PATIENCE
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(max(0, until - time.monotonic()))
        worker.kill()
        worker.join()


class _OneByOne(socket.socket):
    """Takes one connection each time that some wait: the next is for whoever has less to do."""

    _took = False

    def accept(self) -> tuple[socket.socket, object]:
        self._took = not self._took
        if not self._took:
            raise BlockingIOError
        return super().accept()


def _work(answer: Answer, listening: socket.socket, say: Say, ready: Semaphore) -> None:
    """Answer until SIGTERM, or until the parent is gone; a terminal's Ctrl-C is the parent's to pass on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up_log(quiet=False)

    def begun() -> Callable[[], None]:
        ready.release()
        return lambda: None

    try:
        answer(_OneByOne(fileno=listening.detach()), begun)
    except SkilleryError as error:
        say(f"skillery: {error}")
        sys.exit(2)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
