"""Documents segmented a processor second, beside markdown-it-py's plain block parse of the same texts.

Run by hand: `python tests/benchmarks/segmentation.py PARQUET [LIMIT]`; PARQUET has a column `content`.
"""
# ruff: noqa: T201

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from markdown_it import MarkdownIt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.parse.segment import segment

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


def main() -> None:
    """Print both rates and their ratio."""
    frame = pl.read_parquet(sys.argv[1], columns=["content"])
    if len(sys.argv) > 2:
        frame = frame.head(int(sys.argv[2]))
    texts = [_FRONT_MATTER.sub("", text, count=1) for text in frame["content"].to_list()]
    plain = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
    reference, ours = (len(texts) / seconds for seconds in _seconds([plain.parse, segment], texts))
    characters = sum(map(len, texts)) / len(texts)
    print(f"{len(texts)} documents, {characters:.0f} characters a document")
    print(f"markdown-it-py, blocks only: {reference:.0f} documents/s")
    print(f"segment: {ours:.0f} documents/s, {ours / reference:.2f} of the reference")


if __name__ == "__main__":
    main()
