"""Requests written for this project: where each step stands, what serves it, and what needs what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tasks.retrieve.compose.drafts import Span

REQUESTS = Path(__file__).parents[1] / "compose" / "data" / "requests.jsonl"


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """A request with its steps, in an order in which they can be done, and their direct dependencies.

    `servers` are ids that serve each step, in lower case; None where they are not known. Requests of one
    `group` say the same in other words.
    """

    text: str
    steps: tuple[tuple[Span, ...], ...]
    edges: tuple[tuple[int, int], ...]
    servers: tuple[frozenset[str], ...] | None = None
    group: int = -1

    def told(self) -> list[int]:
        """Return the steps' numbers in the order in which the request tells them."""
        return sorted(range(len(self.steps)), key=lambda k: self.steps[k][0])


def read_written(file: Path = REQUESTS) -> list[WrittenRequest]:
    """Return the requests of JSON lines `{request, steps: [[[start, end]]], edges, servers, group}`.

    `edges` are pairs of places from 0 on; `servers`, a list of ids for each step, may be left out; `group` is
    the line of the first wording, from 0 on, in a second one.
    """
    found = []
    for number, line in enumerate(file.read_text("utf-8").splitlines()):
        row = json.loads(line)
        steps = tuple(tuple((a, b) for a, b in spans) for spans in row["steps"])
        servers = (
            tuple(frozenset(s.lower() for s in ids) for ids in row["servers"]) if "servers" in row else None
        )
        edges = tuple((a, b) for a, b in row["edges"])
        found.append(WrittenRequest(row["request"], steps, edges, servers, row.get("group", number)))
    return found
