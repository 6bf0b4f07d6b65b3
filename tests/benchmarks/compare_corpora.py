"""Two corpora's structural measures side by side, as `skillery evaluate corpus A B` prints them too.

Run by hand: `python tests/benchmarks/compare_corpora.py A B`; each a root, a Parquet file or JSON lines.
"""
# ruff: noqa: T201

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.evaluate.corpus.compare import compare
from tasks.evaluate.corpus.read import load_corpus


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def main() -> None:
    """Print a row a measure, and the time it took."""
    start = time.process_time()
    comparison = compare(load_corpus(sys.argv[1]).measures, load_corpus(sys.argv[2]).measures)
    print(f"A {comparison.documents_a:,}, B {comparison.documents_b:,} documents")
    heads = ("median A", "median B", "mean A", "mean B", "p", "p adjusted", "effect")
    print(f"{'measure':24}" + "".join(f"{head:>12}" for head in heads))
    for c in comparison.contrasts:
        values = (c.median_a, c.median_b, c.mean_a, c.mean_b, c.p, c.p_adjusted, c.effect)
        print(f"{c.measure:24}" + "".join(f"{_shown(value):>12}" for value in values))
    print(f"{time.process_time() - start:.1f} s")


if __name__ == "__main__":
    main()
