"""What nights of crawling cost: `python -m tests.benchmarks.crawl [--delay S] [--fault-rate R]`.

2,000 listings of 600 repositories on the marketplace on loopback, each night in a process of its own: the
first, the same again, and one with 1 % changed. What each host got within a second is shown beside what the
delay allows.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.marketplace.faults import Faults
from tests.support.marketplace.populate import change, populate
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World


def night(market: Marketplace, root: Path, urls: Path, delay: float) -> dict[str, Any]:
    """Crawl once and return the report, with seconds and the children's peak memory in MB."""
    market.clear_requests()
    started = time.perf_counter()
    command = [sys.executable, "-m", "tests.support.crawl.crawl_process", str(root), str(urls), str(delay)]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {**json.loads(printed), "seconds": round(seconds, 1), "peak_mb": round(peak)}


def show(name: str, report: dict[str, Any], market: Marketplace, delay: float) -> None:
    """Print a night."""
    counts = ("state", "listed", "new", "changed", "unchanged", "failed", "requests", "seconds", "peak_mb")
    sys.stdout.write(f"{name}: " + ", ".join(f"{k} {report[k]}" for k in counts) + "\n")
    kinds = Counter(r.kind for r in market.requests)
    again = Counter(r.path for r in market.requests if r.kind == "archive" and r.fault is None)
    most = max(again.values(), default=0)
    sys.stdout.write(f"  {dict(kinds)}; an archive was answered whole at most {most} times\n")
    services = [s for s in ("skillsmp", "api", "archive", "raw") if market.count(service=s)]
    rates = ", ".join(f"{s} {market.log.most_within(s, 1.0)}" for s in services)
    allowed = f"{int(1 / delay) + 1}" if delay else "any number"
    sys.stdout.write(f"  most requests that a host got within a second, allowed {allowed}: {rates}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--fault-rate", type=float, default=0.05)
    given = parser.parse_args()
    world = World()
    world.github.anonymous_limit = 1_000_000
    populate(world)
    with tempfile.TemporaryDirectory() as folder, Marketplace(world, Faults(given.fault_rate)) as market:
        urls = Path(folder) / "urls.json"
        urls.write_text(json.dumps(market.environment()))
        for name in ("first night", "the same again", "1 % changed"):
            if name == "1 % changed":
                sys.stdout.write(f"changed: {len(change(world, 0.01))} skills\n")
            report = night(market, Path(folder) / "root", urls, given.delay)
            show(name, report, market, given.delay)


if __name__ == "__main__":
    main()
