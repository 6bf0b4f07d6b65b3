"""How long choosing takes in domains of more and more skills, beside the first of them in the same run.

    python -m tests.benchmarks.suggest_latency TRAJECTORIES DOMAIN [SKILLS ...]

The moments of DOMAIN are learned again and again, each time with other labels, until there are so many
skills; then the steps of its runs are asked. Texts have drawn vectors: encoding is no part of it.
"""
# ruff: noqa: T201 - what a benchmark says, it prints

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tasks.induce.skills.actions import Body
from tasks.induce.skills.windows import DecisionPoint, decision_points
from tasks.induce.trajectories.read import Reading, read_trajectories
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.methods import Offered, SkillQuestion, default

_ASKED, _WIDTH = 200, 384


def _again(moment: DecisionPoint, turn: int) -> DecisionPoint:
    """Return a moment whose labels are those of another page of the domain."""
    return replace(moment, bodies=tuple(_renamed(body, turn) for body in moment.bodies)) if turn else moment


def _renamed(body: Body, turn: int) -> Body:
    return tuple(
        replace(action, name=action.name if action.role else f"{action.name}_{turn}",
                target=f"{action.target} {turn}" if action.role else None)
        for action in body
    )  # fmt: skip


def _turns(known: list[list[DecisionPoint]]) -> Iterator[tuple[int, list[DecisionPoint]]]:
    turn = 0
    while True:
        for own in known:
            yield turn, own
        turn += 1


def _drawn(texts: Sequence[str]) -> Vectors:
    vectors = np.random.default_rng(42).standard_normal((len(texts), _WIDTH)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def main(path: str, domain: str, sizes: list[int]) -> None:
    """Print the number of uses, the median and the 95th percentile of each size, in milliseconds."""
    read = read_trajectories([Path(path)], "trajectories", Reading())
    known = [decision_points(one) for _, one in read if one.success and one.domain == domain]
    offered, turns = Offered(_drawn), _turns(known)
    of_task, *states = _drawn([moment.state for own in known for moment in own][: _ASKED + 1])
    for size in sizes:
        while len(offered.skills) < size:
            turn, own = next(turns)
            offered.learn(_again(moment, turn) for moment in own)
        default(offered, SkillQuestion(of_task, of_task, of_task), 5)  # what is made once is made here
        took = []
        for state in states:
            began = time.perf_counter()
            default(offered, SkillQuestion(of_task, state, state), 5)
            took.append(1000 * (time.perf_counter() - began))
        median, most = np.percentile(took, [50, 95])
        n, uses = len(offered.skills), len(offered.uses().skill)
        print(f"{n:7,} skills, {uses:7,} uses: {median:6.1f} ms, p95 {most:6.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3:]] or [100, 1000, 10_000, 100_000])
