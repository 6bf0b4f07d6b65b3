"""What it costs a server to keep its usage: `python -m tests.benchmarks.usage_cost ROOT [CLIENTS] [SECONDS]`.

Two servers of one root, without a log and with counts, are asked by turns, each for the given time in all. A
row holds the answers of one, its processor milliseconds a question, and the times of its answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time

import aiohttp

from storage.root import Root
from tests.benchmarks.serve_load import Load, p95, questions
from tests.support.serving import Serving, serving

_TURNS = 12


def spent(server: Serving) -> float:
    """Return the processor seconds of a server so far."""
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def turn(load: Load, clients: int, seconds: float) -> float:
    """Let so many clients ask for a while; return the server's processor milliseconds a question."""
    began, asked = spent(load.server), len(load.took) + load.failed.total()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(load.client(session, until) for _ in range(clients)))
    return 1000 * (spent(load.server) - began) / max(1, len(load.took) + load.failed.total() - asked)


def main(place: str, clients: str = "50", seconds: str = "60") -> None:
    asked = questions(Root(place))
    with serving(place, SKILLERY_QUERY_LOG="off") as off, serving(place, SKILLERY_QUERY_LOG="counts") as kept:
        loads = {"off": Load(off, asked), "counts": Load(kept, asked)}
        for load in loads.values():  # what a server loads and learns first is in no turn
            asyncio.run(turn(load, int(clients), 5))
            load.took.clear()
        cost: dict[str, list[float]] = {mode: [] for mode in loads}
        for number in range(_TURNS):
            for mode in sorted(loads, reverse=number % 2 == 0):
                cost[mode].append(asyncio.run(turn(loads[mode], int(clients), float(seconds) / _TURNS)))
    for mode, load in loads.items():
        row = {
            "log": mode, "answers": len(load.took), "failed": dict(load.failed),
            "cpu_ms": round(statistics.mean(cost[mode]), 3), "median_ms": round(statistics.median(load.took)),
            "p95_ms": round(p95(load.took)),
        }  # fmt: skip
        sys.stdout.write(f"{json.dumps(row)}\n")
    ratios = [with_log / without for with_log, without in zip(cost["counts"], cost["off"], strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    sys.stdout.write(f"cpu with the log / without, by turn: {statistics.mean(ratios):.4f} +- {error:.4f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
