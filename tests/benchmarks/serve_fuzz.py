"""Sends hostile requests to a server, and prints what came of them and of a client beside them.

python -m tests.benchmarks.serve_fuzz ROOT [COUNT] [SEED]
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

from tests.support.hostile import besiege
from tests.support.serving import serving


def main(root: str, count: str = "2000", seed: str = "1") -> None:
    """Print statuses, what must not have happened, and the medians of the good client."""
    canary = "canary-of-a-file-outside-the-root"
    outside = Path(root).parent / "outside.txt"
    outside.write_text(canary, "utf-8")
    try:
        with serving(root) as server:
            siege = asyncio.run(besiege(server, int(count), seed=int(seed), canary=canary, alone=40))
            print(f"resident memory: {server.resident():.0f} MB; stderr: {''.join(server.said[1:])[-500:]!r}")
    finally:
        outside.unlink()
    print(f"{siege.statuses.total()} requests, answers by status: {dict(sorted(siege.statuses.items()))}")
    print(f"wrong: {siege.wrong[:10] or 'nothing'}")
    alone, beside = statistics.median(siege.alone), statistics.median(siege.beside)
    print(
        f"a good client's median: {alone:.0f} ms alone, {beside:.0f} ms beside ({len(siege.beside)} answers)"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
