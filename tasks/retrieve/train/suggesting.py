"""Fits the weights by which moments count: `python -m tasks.retrieve.train.suggesting TRAJECTORIES...`.

At each step of a stream the likelihood is that of the moments at which a skill was learned that is usable now
(a conditional logit over moments). Standard output has the weights of all domains, and of all but one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from tasks.induce.bindings.fits import misfit
from tasks.induce.trajectories.cleaning import CleanStep, cleaned
from tasks.induce.trajectories.read import Reading, read_trajectories
from tasks.induce.trajectories.record import Trajectory
from tasks.induce.windows.recurrence import Moment, moments
from tasks.models.adapted_encoder import BASE
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.suggest.memory import FEATURES, Memory, Numbers

_PENALTY = 1.0  # on the squared distance of each weight from where the fit begins


@dataclass(frozen=True, slots=True)
class StreamLesson:
    """A step: the features of the moments known by then, and which of them taught what was usable."""

    domain: str
    features: Numbers
    right: npt.NDArray[np.bool_]


def lessons(trajectories: Sequence[Trajectory], encoder: Encoder) -> list[StreamLesson]:
    """Return the steps of successful trajectories at which a moment taught what was usable."""
    memories: defaultdict[str, Memory] = defaultdict(Memory)
    found: list[StreamLesson] = []
    for trajectory in trajectories:
        if trajectory.success:
            memory, known = memories[trajectory.domain], moments(trajectory)
            vector = encoder.encode([trajectory.task])[0]
            found += _of_trajectory(trajectory, memory, known, vector)
            memory.add(known, vector)
    return [lesson for lesson in found if lesson.right.any()]


def _of_trajectory(
    trajectory: Trajectory, memory: Memory, known: Sequence[Moment], vector: Vectors
) -> list[StreamLesson]:
    steps = cleaned(trajectory)[0]
    acting = [place for place, step in enumerate(steps) if not step.action.speaks]
    others = ~memory.of_task(trajectory.task_id)
    return [
        StreamLesson(
            trajectory.domain,
            memory.features(moment.situation, vector)[others],
            _right(memory, trajectory.task, steps, place)[others],
        )
        for moment, place in zip(known, acting, strict=True)
        if len(memory)
    ]


def _right(memory: Memory, task: str, steps: Sequence[CleanStep], place: int) -> npt.NDArray[np.bool_]:
    fits = np.array([misfit(body, task, steps, place) is None for body in memory.skills], dtype=bool)
    moment, skill = memory.pairs
    right = np.zeros(len(memory), dtype=bool)
    right[moment[fits[skill]]] = True
    return right


def fit_weights(given: Sequence[StreamLesson], begin: Numbers) -> Numbers:
    """Return the weights of `FEATURES` under which the right moments are likeliest, near to `begin`."""

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        away = weights - begin
        value, slope = _PENALTY * float(away @ away), 2 * _PENALTY * away
        for lesson in given:
            scores = lesson.features @ weights
            likely = np.exp(scores - scores.max())
            good = np.where(lesson.right, likely, 0.0)
            value += float(np.log(likely.sum()) - np.log(good.sum() + 1e-300))
            slope = slope + lesson.features.T @ (likely / likely.sum() - good / (good.sum() + 1e-300))
        return value, slope

    return np.asarray(minimize(loss, begin, jac=True, method="L-BFGS-B").x)


def main(paths: Sequence[str]) -> None:
    """Print the weights that files of trajectories teach."""
    trajectories = [one for _, one in read_trajectories(map(Path, paths), "trajectories", Reading())]
    with tempfile.TemporaryDirectory() as folder:
        given = lessons(trajectories, OnnxEncoder(exported_encoder(Path(folder), BASE)))
    begin = np.zeros(len(FEATURES))
    domains = sorted({lesson.domain for lesson in given})
    for left_out in [None, *domains]:
        weights = fit_weights([lesson for lesson in given if lesson.domain != left_out], begin)
        row = dict(zip(FEATURES, weights.round(2).tolist(), strict=True))
        sys.stdout.write(json.dumps({"without": left_out, **row}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
