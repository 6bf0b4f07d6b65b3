"""Connections: their number is bounded, and so is the time in which a request must come and be answered."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.serve.answers.service import ServeSettings

_TAKING = 30.0  # seconds, beyond the answer's own, in which a client must take an answer
IDLE = 60  # seconds that a connection may wait for its next request


class BoundedProtocol(H11Protocol):
    """The protocol of uvicorn, which by itself waits for headers, and for readers of answers, without end."""

    limits: ClassVar[ServeSettings]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or turn a client away that has too many connections."""
        super().connection_made(transport)
        self._by(self.limits.read_seconds)
        others = [c for c in self.connections if isinstance(c, H11Protocol) and _host(c) == _host(self)]
        if len(others) > self.limits.client_connections:
            self._turn_away(b"429 Too Many Requests", b"too many connections from your address")
        elif len(self.connections) > self.limits.connections:
            self._turn_away(b"503 Service Unavailable", b"too many connections")

    def handle_events(self) -> None:
        """Handle what came; once it is a request, its body and its answer have their time."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._by(self.limits.read_seconds + self.limits.seconds + _TAKING)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._by(IDLE + self.limits.read_seconds)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _by(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _turn_away(self, status: bytes, why: bytes) -> None:
        body = b'{"error": "%s: close some, and ask again in a second"}' % why
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
        self.transport.write(head % status + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


def bounded_protocol(limits: ServeSettings) -> type[BoundedProtocol]:
    """Return the protocol with these limits."""
    return type("BoundedByLimits", (BoundedProtocol,), {"limits": limits})


def _host(connection: H11Protocol) -> str | None:
    return connection.client[0] if connection.client else None
