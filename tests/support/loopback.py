"""HTTP servers on loopback that live as long as a block, one of them a model hub that knows a few names."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def answering(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer by a handler on a free port, and give the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def loopback_hub(names: Collection[str], gated: Collection[str] = ()) -> Iterator[str]:
    """Serve what the hub tells of these models, 404 for others, and yield the address for HF_ENDPOINT.

    For `gated` models it answers 403, as for one whose terms nobody has accepted.
    """

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/api/models/")
            found = name in names
            body = json.dumps({"id": name, "tags": []} if found else {"error": "not found"}).encode()
            self.send_response(200 if found else 403 if name in gated else 404)
            if not found:
                self.send_header("X-Error-Code", "GatedRepo" if name in gated else "RepoNotFound")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with answering(Hub) as address:
        yield address
