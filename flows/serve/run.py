"""Runs the server: over HTTP at an address, in one process or several, or over standard input and output."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from flows.hook.run import SERVING
from flows.serve.answers.service import ServeSettings, Service, load_serving
from flows.serve.gate import is_loopback, usable_token
from flows.serve.workers import Begun, Say, serve_in_workers
from flows.settings import load_settings
from storage.errors import WrongInput
from storage.folder import put_file
from storage.root import Root
from tasks.retrieve.registry.indexes import normal_base

_ANY = ("0.0.0.0", "::")  # noqa: S104 (compared)


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
