"""The same build in one process, on threads, on Dask and on S3: how long each takes, and that all are alike.

    python tests/benchmarks/beyond_one_machine.py [--skills N] [--source SPEC] [--workers 2] [--model FOLDER]

Each is `skillery run` in a process of its own on an empty root. The seconds are those of the stages, so that
Prefect's own start is left out; `wall` has it in. Needs the extras `s3`, `dask` and `test`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from storage.root import Root
from tests.support.roots.built import built_at, lowest_cosine
from tests.support.roots.many_skills import many_skills
from tests.support.s3_server import BUCKET, s3_server

_STAGES = ("crawl", "refine", "parse", "index")


def run(root: str, source: str, settings: Mapping[str, str], model: Path | None) -> dict[str, Any]:
    """Build a root and return the run's record, `wall` seconds added."""
    if model is not None:  # exporting it takes 20 s, once a root
        place = Root(root).folder / "models" / model.name
        shutil.copytree(model, place)
    command = [sys.executable, "-c", "from flows.cli.main import main; main()", "run"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--root", root, "--source", source, "--json"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{root}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    record: dict[str, Any] = json.loads(done.stdout)
    return {**record, "wall": time.monotonic() - began}


def main() -> None:
    """Print a line a build."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--skills", type=int, default=60, help="skills written by rule, where no source is named"
    )
    parser.add_argument("--source", help="a source spec instead")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--model", type=Path, help="an export of the encoder to begin with")
    parser.add_argument("--only", nargs="*", default=["process", "threads", "dask", "s3", "s3+dask"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, s3_server(Path(scratch) / "copies") as s3:
        os.environ.update(s3)
        source = given.source or f"dir:{_written(Path(scratch) / 'market', given.skills)}"
        dask = {"SKILLERY_TASK_RUNNER": "dask", "SKILLERY_TASK_WORKERS": given.workers}
        bucket = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        builds = {
            "process": (f"{scratch}/one", {}),
            "threads": (f"{scratch}/threads", {"SKILLERY_TASK_WORKERS": given.workers}),
            "dask": (f"{scratch}/dask", dask),
            "ray": (f"{scratch}/ray", {**dask, "SKILLERY_TASK_RUNNER": "ray"}),
            "s3": (f"{bucket}/one", {}),
            "s3+dask": (f"{bucket}/dask", dask),
        }
        first = None
        for name in given.only:
            root, settings = builds[name]
            record = run(root, source, settings, given.model)
            built = built_at(Root(root))
            first = first or built
            seconds = " ".join(f"{stage} {record['seconds'].get(stage, 0):6.1f}" for stage in _STAGES)
            sys.stdout.write(
                f"{name:8} {seconds}  wall {record['wall']:6.1f} s; {len(built.skills)} skills, "
                f"{len(built.nodes)} nodes; least cosine {lowest_cosine(first, built):.7f}\n"
            )
            sys.stdout.flush()


def _written(market: Path, count: int) -> Path:
    for name, text in many_skills(count).items():
        (market / name).mkdir(parents=True)
        (market / name / "SKILL.md").write_text(text, "utf-8")
    return market


if __name__ == "__main__":
    main()
