"""How long `compose` takes beside `search` in the same run, and the peak memory of each.

Run by hand: `python tests/benchmarks/compose_latency.py ROOT QUERIES.jsonl [LIMIT]`; ROOT serves, lines are
`{"query": ...}`. The two take turns in one warm process, so that both meet the same load of the machine;
the memory of each is that of a process of its own that does nothing else.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from flows.commands.queries import open_index
from flows.settings import load_settings
from storage.root import Root
from tasks.retrieve.compose.compose import ComposeOptions, compose

_NAMES = ("search", "compose", "compose --rounds 0")
_ALONE = "--alone"  # makes this a process that asks one of the two
_WARM = 3  # queries before the clock runs: the first one opens the index


def _askers(root: str) -> dict[str, Callable[[str], Any]]:
    index = open_index(Root(root), load_settings())
    asks: list[Callable[[str], Any]] = [
        lambda query: index.search(query, 10),
        lambda query: compose(index, query),
        lambda query: compose(index, query, ComposeOptions(rounds=0)),
    ]
    return dict(zip(_NAMES, asks, strict=True))


def _took(ask: Callable[[str], Any], query: str) -> float:
    began = time.perf_counter()
    ask(query)
    return 1000 * (time.perf_counter() - began)


def _peak(root: str, queries: str, limit: int, name: str) -> float:
    """Return the peak memory, in MB, of a process that asks all queries of one of them."""
    command = [sys.executable, __file__, root, queries, str(limit), _ALONE, name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main(root: str, queries: str, limit: int, alone: str | None) -> None:
    """Print medians, 95th percentiles and peak memory."""
    lines = Path(queries).read_text("utf-8").splitlines()[:limit]
    asked = [json.loads(line)["query"] for line in lines]
    if alone is not None:
        ask = _askers(root)[alone]
        for query in asked:
            ask(query)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    # First of all: a process that is started counts the peak of the one that started it as its own.
    peaks = {name: _peak(root, queries, limit, name) for name in _NAMES}
    askers = _askers(root)
    for query in asked[:_WARM]:
        for ask in askers.values():
            ask(query)
    took: dict[str, list[float]] = {name: [] for name in askers}
    for turn, query in enumerate(asked):
        first = turn % len(_NAMES)
        for name in _NAMES[first:] + _NAMES[:first]:
            took[name].append(_took(askers[name], query))
    print(f"{len(asked)} queries")
    for name, times in took.items():
        spread = f"median {np.median(times):7.1f} ms   p95 {np.quantile(times, 0.95):7.1f} ms"
        print(f"{name:20} {spread}   peak memory {peaks[name]:6.0f} MB")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    only = arguments[arguments.index(_ALONE) + 1] if _ALONE in arguments else None
    most = int(arguments[2]) if len(arguments) > 2 else 10_000
    main(arguments[0], arguments[1], most, only)
