"""A site on loopback that answers each path as a table says, with ETags, and counts what it is asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

Ask = Mapping[str, str]  # the parameters of a query
# A body, a JSON value, a status with headers and a body, or what answers with one of them.
Page = bytes | dict[str, Any] | list[Any] | tuple[int, Mapping[str, str], bytes]


class Site:
    """Serves `pages` by path, 404 for any other; a function gets the query, or the JSON that was posted."""

    def __init__(self, pages: Mapping[str, Page | Callable[[Any], Page]] | None = None) -> None:
        self.pages: dict[str, Page | Callable[[Any], Page]] = dict(pages or {})
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the client to have read its head

            def do_GET(self) -> None:
                self._answer(dict(parse_qsl(urlsplit(self.path).query)))

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _answer(self, given: Any) -> None:  # noqa: ANN401
                site.asked.append(self.path)
                page = site.pages.get(urlsplit(self.path).path, (404, {}, b""))
                page = page(given) if callable(page) else page
                if not isinstance(page, tuple):
                    body = page if isinstance(page, bytes) else json.dumps(page).encode()
                    page = (200, {"ETag": f'"{hashlib.sha256(body).hexdigest()[:12]}"'}, body)
                status, headers, body = page
                if headers.get("ETag", "-") == self.headers.get("If-None-Match"):
                    status, body = 304, b""
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def since(self) -> list[str]:
        """Return the paths asked for since the last call."""
        asked, self.asked = self.asked, []
        return asked
