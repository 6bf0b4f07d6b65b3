"""The same build on threads, Dask, Ray and S3: its seconds, requests and overhead; rows must be alike.

    python -m tests.benchmarks.beyond_one_machine SKILLS.parquet [--skills N] [--workers N..] [--only NAME..]

Each build is `skillery run` in a process of its own on an empty root. The seconds are those of the stages, so
that Prefect's own start is left out; `wall` has it in. Before them: what a batch that does nothing costs, and
the start of each cluster. Needs the extras `s3`, `dask`, `ray` and `test`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.root import Root
from tests.benchmarks.nightly_cost import skills_of
from tests.support.command import MAIN
from tests.support.roots.built import Built, built_at, lowest_cosine
from tests.support.s3_server import BUCKET, s3_server

_STAGES = ("crawl", "refine", "parse", "index")
_RUNNERS = ("threads", "dask", "ray")
_EMPTY_BATCHES = 100
_EMPTY = """
import sys, time
from flows.commands.runs import prefect_for
from storage.root import Root
with prefect_for(Root(sys.argv[1])):
    from prefect import flow, task
    from flows.runners import run_batches, shared_runner

    @task
    def nothing(number: int) -> int:
        return number

    def seconds(count: int) -> float:
        began = time.monotonic()
        calls = ((nothing, {"number": n}) for n in range(count))
        assert list(run_batches("nothing", calls, count)) == list(range(count))
        return time.monotonic() - began

    @flow
    def batches() -> tuple[float, float]:
        with shared_runner():
            return seconds(1), seconds(int(sys.argv[2]))

    print("seconds", *batches())
"""


def settings_of(runner: str, workers: int) -> dict[str, str]:
    """Return the environment of a run on so many workers."""
    return {"SKILLERY_TASK_RUNNER": runner, "SKILLERY_TASK_WORKERS": str(workers)}


def overhead(root: str, settings: Mapping[str, str]) -> str:
    """Return the seconds until a run has done its first batch, and the milliseconds of each of the others."""
    command = [sys.executable, "-c", _EMPTY, root, str(_EMPTY_BATCHES)]
    out = _run(command, settings)
    first, rest = map(float, re.findall(r"^seconds (\S+) (\S+)$", out, re.MULTILINE)[0])
    return f"first batch {first:5.1f} s, each of {_EMPTY_BATCHES} more {1000 * rest / _EMPTY_BATCHES:5.1f} ms"


def build(root: str, source: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """Build a root and return the run's record, `wall` seconds added."""
    began = time.monotonic()
    out = _run([*MAIN, "run", "--root", root, "--source", f"parquet:{source}", "--json"], settings)
    return {**json.loads(out), "wall": time.monotonic() - began}


def _run(command: list[str], settings: Mapping[str, str]) -> str:
    environment = {**os.environ, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{settings}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def row(record: Mapping[str, Any], built: Built, first: Built) -> str:
    """Return a build's figures as a line."""
    seconds = " ".join(f"{stage} {record['seconds'].get(stage, 0):6.1f}" for stage in _STAGES)
    counts = f"{len(built.skills)} skills, {len(built.nodes)} nodes"
    cosine = f"least cosine {lowest_cosine(first, built):.5f}"
    return f"{seconds}  wall {record['wall']:6.1f} s; {counts}; {cosine}"


def requests(log: Path, since: int) -> tuple[int, str]:
    """Return the length of a server's log, and how many requests of each kind came after `since` lines."""
    lines = log.read_text("utf-8").splitlines()
    kinds = Counter(re.findall(r'"(?:\x1b\[[\d;]*m)*([A-Z]+) ', "\n".join(lines[since:])))
    return len(lines), ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())


def main() -> None:
    """Print a line a runner, and one a build."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--skills", type=int, default=400)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--only", nargs="+", default=[*_RUNNERS, "s3"], choices=[*_RUNNERS, "s3"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        log = folder / "requests.log"
        source = folder / "skills.parquet"
        skills_of(given.parquet, given.skills).write_parquet(source)
        with s3_server(folder / "copies", log) as s3:
            os.environ.update(s3)
            _measure(folder, source, log, given.only, given.workers)


def _measure(folder: Path, source: Path, log: Path, only: list[str], workers: list[int]) -> None:
    builds = {
        f"{runner} {count}": (f"{folder}/{runner}{count}", settings_of(runner, count))
        for runner in _RUNNERS for count in workers if runner in only
    }  # fmt: skip
    for name, (_, settings) in builds.items():
        _say(f"{name:10} {overhead(f'{folder}/empty', settings)}")
    if "s3" in only:
        bucket = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        builds |= {"s3": (bucket, {}), "s3 again": (bucket, {})}
    few = folder / "few.parquet"
    skills_of(source, 5).write_parquet(few)
    build(f"{folder}/few", few, {})  # exports the encoder for all that follow
    first, seen = None, 0
    for name, (root, settings) in {"default": (f"{folder}/default", {}), **builds}.items():
        record = build(root, source, settings)
        _, asked = requests(log, seen)
        built = built_at(Root(root))
        first = first or built
        _say(f"{name:10} {row(record, built, first)}; requests: {asked or 'none'}")
        seen, _ = requests(log, 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
