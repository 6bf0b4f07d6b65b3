"""Faults on demand: a share of requests by a seed, or a script for one URL."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

FaultKind: TypeAlias = Literal[
    "429-seconds",
    "429-date",
    "429",
    "500",
    "502",
    "cut",
    "slow",
    "hang",
    "html",
    "wrong-json",
    "missing-fields",
    "secondary",
    "redirect",
    "gzip-bomb",
    "endless",
    "none",
]
# Those that a client gets over by trying again.
TRANSIENT: tuple[FaultKind, ...] = ("429-seconds", "429-date", "429", "500", "502", "cut")


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour.

    Args:
        kind: `none` answers as if there were no fault: a gap in a script.
        seconds: What Retry-After says, or how long a slow body or a hang takes.
        status: Of the HTML page, or of the redirect (then 302 stands for 200).
        fields: What an answer with missing fields lacks, at whatever depth.
        location: Where a redirect leads.
        size: How many bytes an endless body has in the end, or a bomb unpacks to.
    """

    kind: FaultKind
    seconds: float = 0
    status: int = 200
    fields: tuple[str, ...] = ()
    location: str = ""
    size: int = 10_000_000_000


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
