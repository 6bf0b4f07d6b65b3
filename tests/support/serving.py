"""A server in a process or a thread of its own, and the Skills extension's methods for the SDK's client."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import mcp_types as types
import uvicorn
from pydantic import ConfigDict

from flows.serve.answers.service import Service, load_serving
from flows.serve.answers.tool import ToolOutcome
from flows.serve.app import serving_config
from flows.serve.run import listen
from flows.settings import load_settings
from storage.root import Root
from tests.support.command import MAIN

Tools = Callable[[str, dict[str, Any]], ToolOutcome]
"""Calls a tool by its name."""


class Serving(NamedTuple):
    """A server that runs: its address, without a slash, its process, and what it has said on stderr."""

    url: str
    process: subprocess.Popen[str]
    said: list[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def resident(self) -> float:
        """Return the memory that it holds, in MB."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmRSS"))


@contextmanager
def serving(root: str, *options: str, **environment: str) -> Iterator[Serving]:
    """Start `skillery serve` on a free port; it has ended when the context ends."""
    command = [*MAIN, "serve", "--root", root, "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stderr is not None
    said: list[str] = []
    reader = threading.Thread(target=said.extend, args=(process.stderr,))
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r" at (http://\S+:\d+):", line):
                break
        else:
            raise AssertionError("".join(said))
        reader.start()
        yield Serving(found[1], process, said)
    finally:
        process.terminate()
        process.wait()
        if reader.ident is not None:
            reader.join()
        process.stderr.close()


class Here(NamedTuple):
    """A server that a thread of this process runs: its address, without a slash."""

    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def serving_here(root: str, **environment: str) -> Iterator[Here]:
    """Serve a root by a thread of this process, which spares a process its imports; with these settings."""
    with patch.dict(os.environ, environment):
        service = Service(Root(root), load_settings(), load_serving())
        service.warm()
        server = uvicorn.Server(serving_config(service, []))
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Here(f"http://127.0.0.1:{listening.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join()


class UriParams(types.RequestParams):
    uri: str


class ListSkills(types.Request[types.PaginatedRequestParams, Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"


class GetSkill(types.Request[UriParams, Literal["skills/get"]]):
    method: Literal["skills/get"] = "skills/get"


class ReadDirectory(types.Request[UriParams, Literal["resources/directory/read"]]):
    method: Literal["resources/directory/read"] = "resources/directory/read"


class AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")

    def told(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def modern_call(number: int, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the headers and the body of a tool's call, as a client of MCP 2026-07-28 posts it."""
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "accept": "application/json, text/event-stream", "content-type": "application/json",
        "mcp-protocol-version": version, "mcp-method": "tools/call", "mcp-name": tool,
    }  # fmt: skip
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return headers, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 (JSON)
        return json.loads(self.body)


def ask_http(
    server: Serving | Here, target: str, body: object = None, *, method: str | None = None, **headers: str
) -> Answer:
    """Send one request and return its answer; a body, sent as JSON unless it is bytes, makes it a POST."""
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        kind = {} if content is None else {"content-type": "application/json"}
        chosen = method or ("GET" if content is None else "POST")
        connection.request(chosen, target, content, {**kind, **named})
        found = connection.getresponse()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
    finally:
        connection.close()
