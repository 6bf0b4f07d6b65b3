"""How a root grows: first build, a night on which 1 % changed, disk, memory and queries, by corpus size.

Run by hand: `python -m tests.benchmarks.growth SKILLS.parquet [FOLDER] [SIZE]...`; 5,000, 20,000 and 60,000
skills where none is given. A corpus larger than the file holds it several times, with words replaced as
`replicas` does it. All is `skillery` itself with `--index skills`, each command a process of its own;
queries are descriptions of served skills, from one `--batch`. The last rows are the slopes of a straight
line through the logarithms: 1 where a figure grows as the corpus does.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tests.benchmarks.nightly_cost import changed, run
from tests.benchmarks.replicas import PeakMemory, replicate
from tests.support.command import MAIN, lines_of

_STAGES = ("crawl", "refine", "parse", "index")
_QUERIES = 50


def disk(folder: Path) -> float:
    """Return the GB that a folder's files take."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file()) / 1e9


def night(root: Path, source: Path, name: str) -> dict[str, float]:
    """Run a night and return its seconds, in all, of the processor and by stage, and its processes' GiB."""
    with PeakMemory(own=False) as peak:
        seconds, spent, record = run(root, source, "skills")
    stages = {f"{name} {stage} s": record["seconds"].get(stage, 0.0) for stage in _STAGES}
    return {f"{name} s": seconds, f"{name} CPU s": spent, **stages, f"{name} GiB": peak.bytes / 2**30}


def asked(root: Path, folder: Path, command: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers to a file of queries."""
    batch, out = folder / "asked.jsonl", folder / "answers.jsonl"
    batch.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    options = ["--batch", str(batch), "--out", str(out), "--root", str(root)]
    subprocess.run([*MAIN, command, *options], check=True, capture_output=True)
    return lines_of(out)


def queries(root: Path, folder: Path, corpus: Path) -> dict[str, float]:
    """Return the median milliseconds of warm answers, and the seconds of a command that asks once."""
    words = pl.read_parquet(corpus, columns=["content"])["content"].str.extract(r"description: *(.{20,200})")
    lines = [{"query": text} for text in words.drop_nulls().sample(_QUERIES, seed=7)]
    found = asked(root, folder, "search", lines)
    first = [{"doc_id": answer["results"][0]["doc_id"], "query": answer["query"]} for answer in found]
    pages = asked(root, folder, "page", first)
    began = time.perf_counter()
    subprocess.run([*MAIN, "search", lines[0]["query"], "--root", str(root)], check=True, capture_output=True)
    return {
        "search ms": statistics.median(answer["took_ms"] for answer in found),
        "page ms": statistics.median(answer["took_ms"] for answer in pages),
        "search once s": time.perf_counter() - began,
    }


def measured(corpus: Path, folder: Path, size: int) -> dict[str, float]:
    """Return the figures of one size; its root stays in the folder."""
    folder.mkdir(parents=True)
    source, root = folder / "skills.parquet", folder / "root"
    replicate(corpus, size, source)
    found = night(root, source, "first")
    changed(pl.read_parquet(source), 100).write_parquet(source)
    found |= night(root, source, "1 %")
    return found | {"disk GB": disk(root)} | queries(root, folder, source)


def main(corpus: Path, folder: Path, sizes: list[int]) -> None:
    """Print a column a size, and the slopes."""
    rows: list[dict[str, float]] = []
    for size in sizes:
        rows.append(measured(corpus, folder / str(size), size))
        print(json.dumps({"skills": size, **rows[-1]}), flush=True)
    for name in rows[0]:
        figures = [row[name] for row in rows]
        line = f"{name:16}" + "".join(f"{figure:12.2f}" for figure in figures)
        if len(sizes) > 1 and min(figures) > 0:
            line += f"   slope {np.polyfit(np.log(sizes), np.log(figures), 1)[0]:5.2f}"
        print(line)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        given = [int(size) for size in sys.argv[3:]] or [5_000, 20_000, 60_000]
        main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(made), given)
