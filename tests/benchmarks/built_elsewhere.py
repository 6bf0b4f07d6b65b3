"""The same build in one process, on two Dask workers and in a bucket: seconds of each, and whether it is one.

`python -m tests.benchmarks.built_elsewhere SKILLS.parquet [--skills N] [--models FOLDER]`, with the extras
`test` and `dask`; the bucket is that of an S3 server on this machine. Each build is the command itself, in a
process of its own. Rows go to stdout, one JSON object a build: `lowest_cosine` is that of any node's vector
to the first build's, whose keys, texts and types the others must have.
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
from collections.abc import Mapping
from pathlib import Path

from storage.root import Root
from tests.benchmarks.nightly_cost import skills_of
from tests.built import built_at, lowest_cosine
from tests.command import MAIN
from tests.s3_server import BUCKET, s3_server

DASK = {"SKILLERY_TASK_RUNNER": "dask", "SKILLERY_TASK_WORKERS": "2"}


def build(root: str, source: Path, environment: Mapping[str, str]) -> dict[str, object]:
    """Run the first night of a root and return its seconds, in all and by stage."""
    command = [*MAIN, "run", "--root", root, "--source", f"parquet:{source}", "--json"]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        sys.stderr.buffer.write(done.stderr[-4000:])
        raise SystemExit(done.returncode)
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 1), "stages": json.loads(done.stdout)["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--skills", type=int, default=200)
    parser.add_argument("--models", type=Path, required=True, help="a root's models/ folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        skills_of(given.parquet, given.skills).write_parquet(folder / "skills.parquet")
        with s3_server(folder / "copies") as bucket:
            os.environ.update(bucket)
            builds = {
                "one process": (str(folder / "one"), {}), "two Dask workers": (str(folder / "dask"), DASK),
                "a bucket": (f"s3://{BUCKET}/built", {}),
            }  # fmt: skip
            one = None
            for title, (uri, environment) in builds.items():
                root = Root(uri)
                shutil.copytree(given.models, root.folder / "models")
                row = {
                    "build": title,
                    "skills": given.skills,
                    **build(uri, folder / "skills.parquet", environment),
                }
                built = built_at(root)
                one = one or built
                row |= {
                    "lowest_cosine": round(lowest_cosine(one, built), 6),
                    "load": round(os.getloadavg()[0], 1),
                }
                sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
