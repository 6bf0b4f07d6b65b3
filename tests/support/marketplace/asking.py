"""A plain client: one request a connection, no redirects followed, nothing raised for a status."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.marketplace.server import Marketplace


@dataclass(frozen=True, slots=True)
class Got:
    """What came back; header names lower-cased."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        return json.loads(self.body)


def ask(market: Marketplace, service: str, path: str, **headers: str) -> Got:
    """Send a GET to a service; in header names `_` stands for `-`.

    Raises:
        http.client.IncompleteRead: The connection was cut before the body's end.
    """
    connection = http.client.HTTPConnection(urlsplit(market.url(service)).netloc, timeout=30)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Got(answer.status, named, answer.read())
    finally:
        connection.close()
