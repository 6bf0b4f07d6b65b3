"""Calls to an MCP server of revision 2026-07-28: over HTTP, or to a command by its standard streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from tasks.crawl.http.responses import Answer, HttpTerminal, HttpTransient, load_json
from tasks.models.fields import mapping_of

if TYPE_CHECKING:  # what opens it loads it
    from tasks.crawl.http.client import Http

_REVISION = "2026-07-28"
_LARGEST = 70_000_000  # bytes of one answer: a file of 50 MB in base64
_MOST_LINES = 1_000  # that a command may write before it answers
_META = {
    "io.modelcontextprotocol/protocolVersion": _REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "skillery", "version": version("skillery")},
    "io.modelcontextprotocol/clientCapabilities": {},
}
UNKNOWN = -32602  # the code of what a server does not know
# By method and parameters; raises as `answered`.
Call: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]


class CallRefused(HttpTerminal):
    """A server answers a call with an error, which has this `code`."""

    code: int = 0


def answered(where: str, message: object) -> Mapping[str, Any]:
    """Return the result of an answer; raise CallRefused for an error, HttpTerminal `shape` for neither."""
    found = mapping_of(message)
    if isinstance(result := found.get("result"), Mapping):
        return result
    error = found.get("error")
    if not isinstance(error, Mapping):
        raise HttpTerminal("shape", where, "the answer is no result of JSON-RPC")
    refused = CallRefused("refused", where, f"the server says: {str(error.get('message'))[:200]}")
    refused.code = code if isinstance(code := error.get("code"), int) else 0
    raise refused


def calls_by_http(http: Http, url: str) -> Call:
    """Return calls that are posted to a URL."""
    numbers = count(1)

    async def call(method: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401 (JSON)
        named = {"mcp-name": _header(params["uri"])} if method == "resources/read" else {}
        headers = {
            "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _REVISION,
            "Mcp-Method": method, **named,
        }  # fmt: skip
        request = _request(next(numbers), method, params)
        try:
            answer = await http.get(url, headers=headers, json=request, max_bytes=_LARGEST)
        except HttpTerminal as error:
            with contextlib.suppress(ValueError, RecursionError):
                body = mapping_of(load_json(error.body))
                if isinstance(body.get("error"), Mapping):
                    answered(url, body)  # an error of JSON-RPC may come with a status of HTTP
            raise
        return answered(url, _message(answer, request["id"]))

    return call


def _request(number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": _META}}


def _header(value: str) -> str:
    plain = re.fullmatch(r"[!-~]+", value) and not value.startswith("=?")
    return value if plain else f"=?base64?{b64encode(value.encode()).decode()}?="


def _message(answer: Answer, number: int) -> object:
    """Return the JSON of an answer, which may come as the events of a stream."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return answer.json()
    for event in re.split(r"\r?\n\r?\n", answer.body.decode("utf-8", "replace")):
        data = "\n".join(line[5:].strip() for line in event.splitlines() if line.startswith("data:"))
        with contextlib.suppress(ValueError, RecursionError):
            if (found := mapping_of(load_json(data.encode()))).get("id") == number:
                return found
    return None


@asynccontextmanager
async def calls_to_command(command: str, timeout: float) -> AsyncGenerator[Call, None]:
    """Run a command as its user typed it (else HttpTerminal `missing`), give calls to it, and end it."""
    words = shlex.split(command)
    where, pipe = f"stdio:{words[0]}", asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=_LARGEST,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise HttpTerminal("missing", where, f"the command cannot be run ({error.strerror})") from error
    numbers = count(1)

    async def call(method: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401 (JSON)
        request = _request(next(numbers), method, params)
        try:
            return answered(where, await asyncio.wait_for(_exchange(process, request), timeout))
        except TimeoutError:
            raise HttpTransient("timeout", where, f"no answer to {method} in {timeout:g} s") from None
        except (OSError, ValueError) as error:
            raise HttpTransient("connection", where, f"no answer to {method} ({error})") from error

    try:
        yield call
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _exchange(process: asyncio.subprocess.Process, request: dict[str, Any]) -> object:
    if process.stdin is None or process.stdout is None:
        raise OSError("it has no streams")
    process.stdin.write(json.dumps(request).encode() + b"\n")
    await process.stdin.drain()
    for _ in range(_MOST_LINES):
        line = await process.stdout.readline()
        if not line:
            raise OSError("it ended")
        with contextlib.suppress(ValueError, RecursionError):  # a notification, or a line for people
            if (found := mapping_of(load_json(line))).get("id") == request["id"]:
                return found
    raise OSError(f"it wrote {_MOST_LINES:,} other lines")
