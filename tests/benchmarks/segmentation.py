"""What segmentation makes of a corpus, and documents a processor second beside markdown-it-py.

Run by hand: `python tests/benchmarks/segmentation.py PARQUET [LIMIT]`; it has columns `id` and `content`.
SkillPager, section 4.1, has 57.7 nodes a skill on average, 38 in the median, 529 at most.
"""
# ruff: noqa: T201

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from markdown_it import MarkdownIt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from storage.schemas import BLOCKS
from tasks.parse.segment.segment import Fragment, segment

_TAIL = 10
_FRONT_MATTER = re.compile(r"\A---\r?\n.*?^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)


def _seconds(runs: Sequence[Callable[[str], object]], texts: Sequence[str]) -> list[float]:
    """Return each run's processor seconds; they take turns, so that a busy machine slows them alike."""
    spent = [0.0] * len(runs)
    for at in range(0, len(texts), 50):
        for i, run in enumerate(runs):
            start = time.process_time()
            for text in texts[at : at + 50]:
                run(text)
            spent[i] += time.process_time() - start
    return spent


def report(skills: dict[str, list[Fragment]]) -> None:
    """Print nodes a skill, their lengths by block kind, and the longest tail of both."""
    counts = np.array([len(fragments) for fragments in skills.values()])
    fragments = [(doc_id, f) for doc_id, own in skills.items() for f in own]
    print(f"\nnodes a skill: mean {counts.mean():.1f}, median {np.median(counts):.0f}, max {counts.max()}")
    print(f"{'block':>10} {'share':>7} {'median':>7} {'p99':>7} {'max':>8} characters")
    for block in BLOCKS:
        lengths = np.array([len(f.text) for _, f in fragments if f.block == block] or [0])
        figures = np.median(lengths), np.quantile(lengths, 0.99), lengths.max()
        print(
            f"{block:>10} {len(lengths) / len(fragments):7.1%} "
            + " {:7.0f} {:7.0f} {:8.0f}".format(*figures)[1:]
        )
    print(f"led in {sum(f.lead_in is not None for _, f in fragments) / len(fragments):.1%}")
    print("\nlongest nodes")
    for doc_id, f in sorted(fragments, key=lambda row: -len(row[1].text))[:_TAIL]:
        print(f"{len(f.text):8} {f.block:>9} {doc_id} {f.text[:60]!r}")
    print("\nskills of the most nodes")
    for doc_id, own in sorted(skills.items(), key=lambda row: -len(row[1]))[:_TAIL]:
        print(f"{len(own):8} {doc_id} {Counter(f.block for f in own).most_common(3)}")


def main() -> None:
    """Print both rates and their ratio, and the report."""
    frame = pl.read_parquet(sys.argv[1], columns=["id", "content"])
    if len(sys.argv) > 2:
        frame = frame.head(int(sys.argv[2]))
    texts = [_FRONT_MATTER.sub("", text, count=1) for text in frame["content"].to_list()]
    plain = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
    reference, ours = (len(texts) / seconds for seconds in _seconds([plain.parse, segment], texts))
    characters = sum(map(len, texts)) / len(texts)
    print(f"{len(texts)} documents, {characters:.0f} characters a document")
    print(f"markdown-it-py, blocks only: {reference:.0f} documents/s")
    print(f"segment: {ours:.0f} documents/s, {ours / reference:.2f} of the reference")
    found = zip(frame["id"], texts, strict=True)
    report({doc_id: list(segment(text).fragments) for doc_id, text in found})


if __name__ == "__main__":
    main()
