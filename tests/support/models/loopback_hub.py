"""A model hub on loopback that knows a few names; nothing can be fetched from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.loopback import answering


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
