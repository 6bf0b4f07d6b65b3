"""A web server on loopback in a thread of this process, whose answers a function gives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: `given` holds what the query and the form say."""

    method: str
    path: str
    given: Mapping[str, str]
    host: str


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; a text is a page. With a `pause`, in seconds, each byte comes by itself after it."""

    body: str | bytes = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0.0


def says_json(value: object) -> Said:
    return Said(json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def goes_to(path: str) -> Said:
    """Return an answer that points elsewhere."""
    return Said(status=303, headers={"Location": path})


@contextmanager
def served(answer: Callable[[Asked], Said], address: str = "127.0.0.1") -> Iterator[str]:
    """Serve what a function answers, and yield the address of its first page."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            given = dict(parse_qsl(parts.query) + parse_qsl(form))
            said = answer(Asked(self.command, parts.path, given, str(self.headers.get("Host"))))
            body = said.body.encode() if isinstance(said.body, str) else said.body
            self.send_response(said.status)
            for name, value in {"Content-Type": "text/html; charset=utf-8", **said.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # who asked may have gone
                for piece in (bytes([byte]) for byte in body) if said.pause else [body]:
                    time.sleep(said.pause)
                    self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Write nothing down."""

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
