"""Lists the patterns that meet text of others, each with its worst growth from n to 2n characters.

python tests/benchmarks/pattern_growth.py
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.patterns import collected, growth_of


def main() -> None:
    """Print a line a pattern, the worst first: ratio, size, milliseconds at that size, place, run."""
    rows = sorted(((growth_of(pattern), place) for pattern, place in collected().items()), reverse=True)
    for (ratio, size, seconds, run), place in rows:
        hostile = "has no long repeat" if run is None else tuple(run)
        print(f"{ratio:5.2f} {size:9,} {seconds * 1000:9.2f} {place} {hostile}")
    print(f"{len(rows)} patterns, worst ratio {rows[0][0].ratio:.2f}")


if __name__ == "__main__":
    main()
