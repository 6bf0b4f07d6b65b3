"""How long `suggest` takes beyond the encodings that it needs, at steps of runs, out of what a root serves.

python tests/benchmarks/suggest_served.py ROOT TRAJECTORIES [METHOD ...]
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from flows.commands.induction.suggest import open_suggester
from flows.settings import load_settings
from storage.root import Root
from tasks.induce.trajectories.read import Reading, read_trajectories
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors

_ASKED = 400
SPENT = [0.0]


def main(root: str, path: str, methods: Sequence[str]) -> None:
    """Print the median and the 95th percentile of each method, in milliseconds."""
    encode = OnnxEncoder.encode

    def timed(self: OnnxEncoder, texts: Sequence[str]) -> Vectors:
        began = time.perf_counter()
        found = encode(self, texts)
        SPENT[0] += time.perf_counter() - began
        return found

    OnnxEncoder.encode = timed  # type: ignore[method-assign]
    suggester = open_suggester(Root(root), load_settings())
    runs = [run for _, run in read_trajectories([Path(path)], "trajectories", Reading())]
    steps = [(run, step) for run in runs for step in run.steps if not step.action.speaks]
    asked = [steps[n] for n in np.linspace(0, len(steps) - 1, _ASKED).astype(int)]
    for method in methods:
        took = []
        for run, step in asked:
            state = {"observation": step.observation, "url": step.url, "title": step.title}
            SPENT[0], began = 0.0, time.perf_counter()
            suggester.suggest(run.task, run.domain, state, method=method)
            took.append(1000 * (time.perf_counter() - began - SPENT[0]))
        median, most = np.percentile(took, [50, 95])
        print(f"{method:8} {len(asked)} steps: {median:5.1f} ms beyond encoding, p95 {most:5.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] or ["default", "sgdr"])
