"""What a run costs beside its encoder, next to an empty Prefect flow in the same environment.

Run by hand: `python tests/benchmarks/overhead.py PARQUET [LIMIT]`. Each line is a process of its own, from
its start to its end, one after the other in one run; each starts Prefect's own server anew.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_EMPTY = """
import sys
from flows.commands.runs import prefect_for
from storage.root import Root
with prefect_for(Root(sys.argv[1])):
    from prefect import flow

    @flow
    def empty() -> None:
        pass

    empty()
"""

# The encoder's share: inference and, on the first run, the export, both timed where they are called.
_RUN = """
import json, sys, time
import tasks.models.encoder as encoder
import tasks.models.onnx_export as export
spent = 0.0

def timed(function):
    def call(*args, **kwargs):
        global spent
        began = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            spent += time.monotonic() - began
    return call

encoder.OnnxEncoder.encode = timed(encoder.OnnxEncoder.encode)
export.exported_encoder, export.export_ahead = timed(export.exported_encoder), timed(export.export_ahead)
from flows.commands.runs import run_nightly
from storage.root import Root
root, source, limit = sys.argv[1:]
record = run_nightly(Root(root), [source], int(limit), "all")
print(json.dumps({"encoder": spent, **record}))
"""


def _process(code: str, *arguments: str) -> tuple[float, str]:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began, done.stdout.decode()


def main(source: str, limit: str) -> None:
    """Print an empty flow, a first and a second run, and what the runs spent beside encoder and flow."""
    for name in ("PREFECT_HOME", "PREFECT_API_URL"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        _process(_EMPTY, f"{folder}/empty")  # the first start also makes Prefect's database
        empty, _ = _process(_EMPTY, f"{folder}/empty")
        print(f"{'':12} {'process':>9} {'encoder':>9} {'beside both':>12}   documents  nodes  vectors made")
        print(f"{'empty flow':12} {empty:8.1f}s")
        for name in ("first run", "second run"):
            seconds, out = _process(_RUN, f"{folder}/root", source, limit)
            record = json.loads(out.splitlines()[-1])
            rest = seconds - record["encoder"] - empty
            counts = f"{record['documents']:9} {record['nodes']:6} {record['vectors_new']:13}"
            print(f"{name:12} {seconds:8.1f}s {record['encoder']:8.1f}s {rest:11.1f}s   {counts}")


if __name__ == "__main__":
    main(f"parquet:{Path(sys.argv[1]).resolve()}", sys.argv[2] if len(sys.argv) > 2 else "300")
