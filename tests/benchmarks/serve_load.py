"""What serving costs beyond the search itself, and how it stands many clients and a change of version.

python -m tests.benchmarks.serve_load ROOT [CLIENTS] [SECONDS] [OTHER]

ROOT must hold two published versions: it is rolled back, and forward again, under the load. With OTHER, a git
worktree of other code or a number of workers, nothing is published: servers of both answer by turns, and the
ratios of this code to the worktree's, or of so many workers to one, are told.
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from mcp.client.client import Client

from flows.commands.operate import roll_back_root
from flows.commands.queries import open_index
from flows.settings import load_settings
from storage.lance.served import require_served
from storage.root import Root
from tests.support.serving import Serving, modern_call, serving

_ALTERNATED, _TURNS = 150, 6


def questions(root: Root) -> list[str]:
    """Return texts to search for: the descriptions of served skills, their first words."""
    index = open_index(root, load_settings())
    with index.version() as now:
        rows = now.skills.rows(["description"]).slice(0, 2000)
    return [" ".join(text.split()[:14]) for text in rows.column("description").to_pylist() if text.strip()]


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


async def overhead(server: Serving, root: Root, asked: list[str]) -> None:
    """Print medians of the same searches in this process and over MCP, one after the other by turns."""
    index, here, there = open_index(root, load_settings()), list[float](), list[float]()
    index.search("anything")
    async with Client(f"{server.url}/mcp") as client:
        await client.list_tools()
        for number, text in enumerate(asked[: _ALTERNATED + 20]):
            began = time.perf_counter()
            index.search(text, 5)
            between = time.perf_counter()
            found = await client.call_tool("search_skills", {"task": text, "k": 5})
            ended = time.perf_counter()
            assert not found.is_error
            if number >= 20:  # both are warm then
                here.append(1000 * (between - began))
                there.append(1000 * (ended - between))
    mid, far = statistics.median(here), statistics.median(there)
    print(
        f"search in process: median {mid:.1f} ms, p95 {p95(here):.1f}; over MCP: {far:.1f}, {p95(there):.1f}"
    )
    print(f"over MCP, median: {far - mid:+.1f} ms")


class Load:
    """Clients that ask one question after the other."""

    def __init__(self, server: Serving, asked: list[str]) -> None:
        self.server, self.asked, self.numbers = server, asked, count()
        self.took: list[float] = []
        self.failed, self.versions = Counter[str](), Counter[str]()

    async def client(self, session: aiohttp.ClientSession, until: float) -> None:
        while time.perf_counter() < until:
            number = next(self.numbers)
            began = time.perf_counter()
            try:
                found = await (self._mcp if number % 2 else self._http)(session, number)
            except (aiohttp.ClientError, KeyError, ValueError, AssertionError) as error:
                self.failed[f"{type(error).__name__}: {error}"[:200]] += 1
                continue
            self.took.append(1000 * (time.perf_counter() - began))
            self.versions[found] += 1

    async def _http(self, session: aiohttp.ClientSession, number: int) -> str:
        query = {"q": self.asked[number % len(self.asked)]}
        async with session.get(f"{self.server.url}/api/search", params=query) as answer:
            found = await answer.json()
            assert answer.status == 200, found
            assert {r["index_version"] for r in found["results"]} == {found["index_version"]}
            return str(found["index_version"])

    async def _mcp(self, session: aiohttp.ClientSession, number: int) -> str:
        headers, body = modern_call(number, "search_skills", {"task": self.asked[number % len(self.asked)]})
        async with session.post(f"{self.server.url}/mcp", json=body, headers=headers) as answer:
            found: dict[str, Any] = await answer.json()
            assert answer.status == 200, found
            assert not found["result"].get("isError"), found
            return str(found["result"]["structuredContent"]["version"])


async def change(root: Root, seconds: float) -> None:
    """Roll back after a third of the time, and forward after two thirds."""
    newest = require_served(root).version
    await asyncio.sleep(seconds / 3)
    back = await asyncio.to_thread(roll_back_root, root, None)
    await asyncio.sleep(seconds / 3)
    forth = await asyncio.to_thread(roll_back_root, root, newest)
    print(f"rolled back to {back['served']}, forward to {forth['served']}")


async def under_load(server: Serving, root: Root, asked: list[str], clients: int, seconds: float) -> None:
    load, memory = Load(server, asked), []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(40)) as session:
        until = time.perf_counter() + seconds
        tasks = [asyncio.create_task(load.client(session, until)) for _ in range(clients)]
        tasks.append(asyncio.create_task(change(root, seconds)))
        while time.perf_counter() < until:
            await asyncio.sleep(seconds / 12)
            memory.append(round(server.resident()))
        await asyncio.gather(*tasks)
    took = load.took
    print(f"{clients} clients, {seconds:g} s: {len(took)} answers ({len(took) / seconds:.1f} a second)")
    print(f"median {statistics.median(took):.0f} ms, p95 {p95(took):.0f}, most {max(took):.0f}")
    print(f"failed: {dict(load.failed) or 0}; answers by version: {dict(load.versions)}")
    print(f"resident memory, MB: {memory}")


def spent(server: Serving) -> float:
    """Return the processor time of a server and its workers so far, in milliseconds."""
    own = server.process.pid
    workers = Path(f"/proc/{own}/task/{own}/children").read_text("utf-8").split()
    stats = [Path(f"/proc/{pid}/stat").read_text("utf-8") for pid in (own, *workers)]
    ticks = sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats)
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


async def burst(load: Load, clients: int, seconds: float) -> tuple[float, float]:
    """Have clients ask for a time; return the seconds and the processor milliseconds that the server took."""
    began, before = time.perf_counter(), spent(load.server)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(90)) as session:
        await asyncio.gather(*(load.client(session, began + seconds) for _ in range(clients)))
    return time.perf_counter() - began, spent(load.server) - before


def by_turns(servers: list[Serving], asked: list[str], clients: int, seconds: float) -> None:
    """Print how two servers answer the same load, each turn in the other order, and the second's ratios."""
    loads = [Load(server, asked) for server in servers]
    used: list[list[tuple[float, float]]] = [[], []]
    for turn in range(_TURNS):
        for place in (0, 1) if turn % 2 else (1, 0):
            used[place].append(asyncio.run(burst(loads[place], clients, seconds / _TURNS)))
    rows = []
    for load, times in zip(loads, used, strict=True):
        lasted, cpu = map(sum, zip(*times, strict=True))
        n, took = len(load.took), load.took
        rows.append((n / lasted, statistics.median(took), p95(took), cpu / n))
        told = (
            "{:.1f} answers a second, median {:.0f} ms, p95 {:.0f} ms, {:.1f} ms of processor time an answer"
        )
        print(f"{clients} clients:", told.format(*rows[-1]), dict(load.failed) or "")
    print("ratios:", *(f"{new / old:.2f}" for old, new in zip(*rows, strict=True)))


def main(place: str, clients: str = "50", seconds: str = "60", other: str | None = None) -> None:
    root = Root(place)
    asked = questions(root)
    if other is None:
        with serving(place) as server:
            asyncio.run(overhead(server, root, asked))
            asyncio.run(under_load(server, root, asked, int(clients), float(seconds)))
            print("the server said:", "".join(server.said[1:])[-2000:] or "nothing more")
        return
    many = other.isdecimal()
    before = serving(place) if many else serving(place, PYTHONPATH=other, PYTHONSAFEPATH="1")
    with before as old, serving(place, *(["--workers", other] if many else [])) as new:
        for some in (int(clients), 1):
            for server in (old, new):
                asyncio.run(burst(Load(server, asked), 8, 3))
            by_turns([old, new], asked, some, float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
