"""How long choosing takes in domains of more and more skills, beside the first of them in the same run.

    python tests/benchmarks/suggest_latency.py TRAJECTORIES DOMAIN [SKILLS ...]

The moments of DOMAIN are learned again and again, each time with other labels, until there are so many
skills; then the steps of its runs are asked. Tasks have drawn vectors: encoding is no part of it.
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.induce.skills.actions import Body
from tasks.induce.trajectories.read import Reading, read_trajectories
from tasks.induce.windows.recurrence import Moment, moments
from tasks.retrieve.suggest.choose import choose
from tasks.retrieve.suggest.memory import Memory

_ASKED, _WIDTH = 200, 384


def _again(moment: Moment, turn: int) -> Moment:
    """Return a moment whose labels are those of another page of the domain."""
    return replace(moment, bodies=tuple(_renamed(body, turn) for body in moment.bodies)) if turn else moment


def _renamed(body: Body, turn: int) -> Body:
    return tuple(
        replace(action, name=action.name if action.role else f"{action.name}_{turn}",
                target=f"{action.target} {turn}" if action.role else None)
        for action in body
    )  # fmt: skip


def _turns(known: list[list[Moment]]) -> Iterator[tuple[int, list[Moment]]]:
    turn = 0
    while True:
        for own in known:
            yield turn, own
        turn += 1


def main(path: str, domain: str, sizes: list[int]) -> None:
    """Print the number of moments, the median and the 95th percentile of each size, in milliseconds."""
    read = read_trajectories([Path(path)], "trajectories", Reading())
    known = [moments(one) for _, one in read if one.success and one.domain == domain]
    chance, memory, turns = np.random.default_rng(42), Memory(), _turns(known)
    vectors = chance.standard_normal((len(known), _WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    asked = [moment.situation for own in known for moment in own][:_ASKED]
    for size in sizes:
        while len(memory.skills) < size:
            turn, own = next(turns)
            memory.add([_again(moment, turn) for moment in own], vectors[int(chance.integers(len(known)))])
        choose(memory, asked[0], vectors[0])  # what is made once is made here
        took = []
        for situation in asked:
            began = time.perf_counter()
            choose(memory, situation, vectors[0])
            took.append(1000 * (time.perf_counter() - began))
        median, most = np.percentile(took, [50, 95])
        print(
            f"{len(memory.skills):7,} skills, {len(memory):7,} moments: {median:6.1f} ms, p95 {most:6.1f} ms"
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3:]] or [100, 1000, 10_000, 100_000])
