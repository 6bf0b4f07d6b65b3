"""Faults on demand, and what they make of an answer; cuts and delays are left to the server."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from tests.support.marketplace.messages import Reply, html_page, json_reply, text_reply

FaultKind: TypeAlias = Literal[
    "429-seconds",
    "429-date",
    "429",
    "500",
    "502",
    "cut",
    "hang",
    "html",
    "wrong-json",
    "missing-fields",
    "secondary",
    "redirect",
    "none",
]
# Those that a client gets over by trying again.
TRANSIENT: tuple[FaultKind, ...] = ("429-seconds", "429-date", "429", "500", "502", "cut")


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour.

    Args:
        kind: `none` answers as if there were no fault: a gap in a script.
        seconds: What Retry-After says, or how long a hang takes.
        status: Of the HTML page, or of the redirect (then 302 stands for 200).
        fields: What an answer with missing fields lacks, at whatever depth.
        location: Where a redirect leads.
    """

    kind: FaultKind
    seconds: float = 0
    status: int = 200
    fields: tuple[str, ...] = ()
    location: str = ""


class Faults:
    """Decides for each request whether it is answered with a fault.

    Args:
        rate: The share of requests (0 to 1) that meet one of these kinds, by a hash of seed, URL and number.
        most_in_a_row: No URL meets more of those one after another.
        seconds: `Fault.seconds` of each.
    """

    def __init__(
        self,
        rate: float = 0.0,
        seed: int = 1,
        kinds: Iterable[FaultKind] = TRANSIENT,
        *,
        most_in_a_row: int = 2,
        seconds: float = 0,
    ) -> None:
        self.rate, self.seed, self.kinds = rate, seed, tuple(kinds)
        self.most_in_a_row, self.seconds = most_in_a_row, seconds
        self._asked: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self._scripts: list[tuple[str, list[Fault]]] = []
        self._lock = threading.Lock()

    def script(self, url: str, faults: Iterable[Fault]) -> None:
        """Answer the next requests to a URL with these, one each.

        Args:
            url: `service:/path` or `service:/path?query`, with `*` and `?` as wildcards (a path alone
                stands for every query); the query as it was sent.
            faults: Used up one by one; then a rate's faults may follow.
        """
        with self._lock:
            self._scripts.append((url, list(faults)))

    def next(self, service: str, path: str, query: str) -> Fault | None:
        """Return the fault for the request that has just come in, None for none."""
        with self._lock:
            whole = f"{service}:{path}?{query}" if query else f"{service}:{path}"
            for url, faults in self._scripts:
                if faults and (url in {whole, f"{service}:{path}"} or fnmatchcase(whole, url)):
                    fault = faults.pop(0)
                    return None if fault.kind == "none" else fault
            return self._drawn(whole)

    def _drawn(self, url: str) -> Fault | None:
        self._asked[url] += 1
        digest = hashlib.sha256(f"{self.seed} {url} {self._asked[url]}".encode()).digest()
        chance = int.from_bytes(digest[:8]) / 2**64
        if chance >= self.rate or self._in_a_row[url] >= self.most_in_a_row:
            self._in_a_row[url] = 0
            return None
        self._in_a_row[url] += 1
        return Fault(self.kinds[digest[8] % len(self.kinds)], seconds=self.seconds)


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
    if fault.kind in {"cut", "hang"}:
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
    raise ValueError(fault.kind)


def _without(value: Any, fields: tuple[str, ...]) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, dict):
        return {key: _without(inner, fields) for key, inner in value.items() if key not in fields}
    return [_without(inner, fields) for inner in value] if isinstance(value, list) else value
