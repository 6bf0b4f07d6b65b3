"""Turns an answer into what a fault makes of it; cuts and delays are left to the server."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

from tests.support.marketplace.faults import Fault
from tests.support.marketplace.messages import Reply, html_page, json_reply, text_reply

_ZEROS = bytes(65_536)


def misbehave(reply: Reply, fault: Fault, now: float) -> Reply:
    """Return what is answered instead; kind and repository stay, for the log.

    Args:
        reply: The right answer.
        fault: What goes wrong.
        now: Seconds since 1970, from which a date in Retry-After counts.
    """
    wrong = _wrong(reply, fault, now)
    wrong.kind, wrong.repository = reply.kind, reply.repository
    return wrong


def _wrong(reply: Reply, fault: Fault, now: float) -> Reply:
    if fault.kind in {"cut", "slow", "hang"}:
        return reply
    if fault.kind.startswith("429"):
        return _too_many(fault, now)
    if fault.kind == "secondary":
        said = json_reply({"message": "You have exceeded a secondary rate limit."}, 403)
        said.headers.update({"retry-after": str(int(fault.seconds))} if fault.seconds else {})
        return said
    if fault.kind in {"500", "502"}:
        return text_reply("The server stumbled", int(fault.kind))
    return _content(reply, fault)


def _too_many(fault: Fault, now: float) -> Reply:
    reply = json_reply({"success": False, "error": {"message": "Too many requests"}}, 429)
    if fault.kind == "429-seconds":
        reply.headers["retry-after"] = str(int(fault.seconds))
    elif fault.kind == "429-date":
        reply.headers["retry-after"] = formatdate(now + fault.seconds, usegmt=True)
    return reply


def _content(reply: Reply, fault: Fault) -> Reply:
    if fault.kind == "html":
        return html_page(fault.status)
    if fault.kind == "redirect":
        status = fault.status if 300 <= fault.status < 400 else 302
        return Reply(status, headers={"location": fault.location})
    if fault.kind == "wrong-json":
        return Reply(200, b'{"skills": [', {"content-type": "application/json"})
    if fault.kind == "missing-fields":
        content = reply.body if isinstance(reply.body, bytes) else b"{}"
        return json_reply(_without(json.loads(content), fault.fields), reply.status)
    if fault.kind == "gzip-bomb":
        packed = {**reply.headers, "content-encoding": "gzip"}
        return Reply(200, _bomb(fault.size), packed)
    return Reply(200, lambda: _zeros(fault.size), reply.headers)


def _without(value: Any, fields: tuple[str, ...]) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, dict):
        return {key: _without(inner, fields) for key, inner in value.items() if key not in fields}
    return [_without(inner, fields) for inner in value] if isinstance(value, list) else value


def _zeros(size: int) -> Iterator[bytes]:
    for start in range(0, size, len(_ZEROS)):
        yield _ZEROS[: size - start]


def _bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(zeros) for zeros in _zeros(size)) + packer.flush()
