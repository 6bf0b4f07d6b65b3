"""Lists the patterns that meet text of others, each with its worst growth from n to 2n characters.

python tests/benchmarks/pattern_growth.py [N]
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.patterns import Pattern, Run, collected, hostile_runs, scan_seconds

_MEASURABLE = 0.002  # seconds: below, the clock is what is measured
_LARGEST = 400_000  # characters


def growth(pattern: Pattern, run: Run, size: int) -> tuple[float, int]:
    """Return how much longer twice a size takes, at the first size that can be measured, and that size."""
    while scan_seconds(pattern, run, size) < _MEASURABLE and size < _LARGEST:
        size *= 4
    shorter, longer = (scan_seconds(pattern, run, n, tries=5) for n in (size, 2 * size))
    return longer / max(shorter, 1e-6), size


def main(size: str = "4000") -> None:
    """Print a line a pattern, the worst first: ratio, size, milliseconds at that size, place, run."""
    rows = []
    for pattern, place in collected().items():
        runs = sorted(((scan_seconds(pattern, r, int(size)), r) for r in hostile_runs(pattern)), reverse=True)
        measured = [(*growth(pattern, run, int(size)), run) for _, run in runs[:3]]
        ratio, at, run = max(measured, default=(1.0, 0, None))
        took = scan_seconds(pattern, run, at) * 1000 if run else 0.0
        rows.append((ratio, at, took, place, run))
    for ratio, at, took, place, run in sorted(rows, key=lambda row: (-row[0], row[3])):
        print(f"{ratio:5.2f} {at:8,} {took:9.2f} {place} {tuple(run) if run else 'no long repeat'!s}")
    print(f"{len(rows)} patterns, worst ratio {max(row[0] for row in rows):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
