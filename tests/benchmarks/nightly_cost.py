"""What a night costs: `python -m tests.benchmarks.nightly_cost SKILLS.parquet [--skills N] [--index MODE]`.

The command itself, orchestrator and all: the first build of N skills, a night on which nothing changed, one
on which one skill in a hundred did, on which one in ten did, and another on which nothing did; each a process
of its own. The targets: 2, 4 and 15 % of the first build. `SKILLS.parquet` has columns `id` (or `doc_id`) and
`content`. Rows go to stdout, one JSON object a night, with its seconds and those of all its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from tests.support.command import MAIN


def run(root: Path, source: Path, index: str) -> tuple[float, float, dict[str, Any]]:
    """Run a night and return its wall seconds, those of the processor, and its record."""
    arguments = ["run", "--root", str(root), "--source", f"parquet:{source}", "--index", index, "--json"]
    started, before = time.perf_counter(), processor()
    done = subprocess.run([*MAIN, *arguments], capture_output=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.stderr.buffer.write(done.stderr[-4000:])
        raise SystemExit(done.returncode)
    return seconds, processor() - before, json.loads(done.stdout)


def processor() -> float:
    """Return the processor seconds of all children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def changed(skills: pl.DataFrame, every: int) -> pl.DataFrame:
    """Return the skills with a sentence more in each `every`-th."""
    more = pl.format("{}\n\nChecked once more on night {}.\n", "content", pl.int_range(pl.len()))
    picked = pl.int_range(pl.len()) % every == every // 2
    return skills.with_columns(content=pl.when(picked).then(more).otherwise("content"))


def skills_of(file: Path, count: int) -> pl.DataFrame:
    """Return the first skills of a file, as `id` and `content`."""
    frame = pl.scan_parquet(file)
    key = "id" if "id" in frame.collect_schema() else "doc_id"
    return frame.select(pl.col(key).alias("id"), "content").head(count).collect()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--skills", type=int, default=2000)
    parser.add_argument("--index", choices=["all", "skills"], default="all")
    parser.add_argument("--changed", type=int, default=100, help="one skill in so many changes")
    given = parser.parse_args()
    skills = skills_of(given.parquet, given.skills)
    with tempfile.TemporaryDirectory() as folder:
        root, source = Path(folder) / "root", Path(folder) / "skills.parquet"
        nights = {
            "first build": skills, "nothing changed": None,
            f"1 in {given.changed} changed": changed(skills, given.changed),
            "1 in 10 changed": changed(skills, 10), "nothing changed again": None,
        }  # fmt: skip
        first = 0.0
        for name, rows in nights.items():
            if rows is not None:
                rows.write_parquet(source)
            seconds, spent, record = run(root, source, given.index)
            first = first or spent
            row = {
                "night": name, "skills": skills.height, "index": given.index, "seconds": round(seconds, 1),
                "processor": round(spent, 1), "share_of_first": round(spent / first, 4),
                "stages": record["seconds"], "documents": record["documents"], "nodes": record["nodes"],
                "vectors_new": record["vectors_new"], "published": record["published"],
                "load": round(os.getloadavg()[0], 1),
            }  # fmt: skip
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
