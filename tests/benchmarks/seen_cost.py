"""What it costs a night to be seen: `python -m tests.benchmarks.seen_cost SKILLS.parquet [--skills N]`.

A first night with `--index skills`, and one on which nothing changed, with lineage to a file and the log as
JSON. Each row holds the processor seconds of all its processes, and as shares of these what its record and
heartbeats, the estimate, lineage (with its client's import) and the log took in the threads that did it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.nightly_cost import skills_of

_WATCHED = """
import atexit, json, os, resource, time
from collections import Counter
from flows import run_record
from flows.commands import foresee
from flows.commands.open_formats import json_log, lineage

spent = Counter(records=0, estimate=0, lineage=0, log=0)
def watch(what, owner, *names):
    for name in names:
        setattr(owner, name, counted(what, getattr(owner, name)))
def counted(what, real):
    def timed(*given, **named):
        began = time.thread_time()
        try:
            return real(*given, **named)
        finally:
            spent[what] += time.thread_time() - began
    return timed
watch("records", run_record, "write_heartbeat", "settle_died", "write_run", "note_good", "_count")
watch("records", run_record, "end_heartbeat")
watch("estimate", foresee, "foreseen_of")
watch("lineage", lineage.Lineage, "_put", "_rows", "_emit_all")
watch("log", json_log.JsonLines, "emit")

def tell():
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(one.ru_utime + one.ru_stime for one in used)
    shares = {what: round(seconds / total, 5) for what, seconds in spent.items()}
    told = {"seconds": round(total, 2), **shares, "in_all": round(sum(spent.values()) / total, 5)}
    with open(os.environ["SEEN"], "w") as file:
        json.dump(told, file)
atexit.register(tell)
from flows.cli.main import main
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--skills", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        skills_of(given.parquet, given.skills).write_parquet(f"{folder}/skills.parquet")
        told = {"SKILLERY_OPENLINEAGE": f"file:{folder}/told", "SKILLERY_LOG_FORMAT": "json"}
        seen = Path(folder, "seen.json")
        night = ["run", "--root", f"{folder}/root", "--source", f"parquet:{folder}/skills.parquet"]
        for name in ("first night", "nothing changed"):
            subprocess.run(
                [sys.executable, "-c", _WATCHED, *night, "--index", "skills", "--json"], check=True,
                env={**os.environ, **told, "SEEN": str(seen)}, capture_output=True,
            )  # fmt: skip
            row = {"night": name, "skills": given.skills, **json.loads(seen.read_bytes())}
            sys.stdout.write(f"{json.dumps(row)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
