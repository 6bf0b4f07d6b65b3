"""The scorer of the router's parts, and all that was trained measured beside what it was trained from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from flows.commands.console import progress
from flows.commands.routing.settings import TrainingOptions
from flows.commands.train.data import UNFITTED, Encoders, Material
from tasks.evaluate.routing.bench import RoutingMethod
from tasks.evaluate.routing.training import (
    DEFAULT,
    TRAINED,
    held_out_bench,
    helps,
    measure_training,
    nearest,
    reranked,
    routed,
    scored,
)
from tasks.models.with_torch.cross_encoder import PairScorer
from tasks.retrieve.routing.router import Router
from tasks.retrieve.train.hard_negatives import Negative
from tasks.retrieve.train.queries import TrainingQuery
from tasks.retrieve.train.rows import fit_listwise, text_form


def fitted_scorer(
    material: Material,
    router: Router,
    queries: Sequence[TrainingQuery],
    lists: Sequence[Sequence[Negative]],
) -> dict[str, float]:
    """Return the weight of each part of the router's score, fitted by the listwise loss over lists."""
    place = {row: at for at, row in enumerate(material.train.rows.tolist())}
    features = []
    for query, candidates in zip(queries, lists, strict=True):
        rows = [place[query.row], *(place[candidate.row] for candidate in candidates)]
        features.append(part_features(router, query.text)[1][rows])
    names = part_features(router, queries[0].text)[0]
    return dict(zip(names, map(float, fit_listwise(features)), strict=True))


def part_features(router: Router, task: str) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the names of the router's parts and their values for a task, shape `(skills, parts)`."""
    parts = {name: part for name, part in router.parts(task).items() if name != UNFITTED}
    return list(parts), np.stack([np.asarray(part, dtype=np.float64) for part in parts.values()], axis=1)


def measured(
    material: Material,
    base: Encoders,
    trained: Encoders,
    scorer: dict[str, float],
    reranker: PairScorer | None,
    options: TrainingOptions,
) -> dict[str, Any]:
    """Return `methods`, `contests` with the default router, and `helps`, all on held-out skills."""
    bench = held_out_bench(material.asked)
    methods = _methods(material, base, trained, scorer, reranker, options)
    steps, total = count(1), len(methods) * len(bench.tasks)
    with progress("held-out queries answered") as report:
        found = measure_training(bench, methods, lambda: report(next(steps), total))
    return {**found, "helps": helps(found["contests"], TRAINED)}


def _methods(
    material: Material,
    base: Encoders,
    trained: Encoders,
    scorer: dict[str, float],
    reranker: PairScorer | None,
    options: TrainingOptions,
) -> dict[str, RoutingMethod]:
    side, weights = material.held_out, np.array(list(scorer.values()))
    text = text_form(options.text, options.tokens, base.skills)
    texts = [text(skill) for skill in side.skills]

    def dense(encoders: Encoders) -> RoutingMethod:
        return nearest(side.skills, encoders.skills.encode(texts), encoders.tasks)

    plain, better = side.router(base), side.router(trained)
    methods = {
        DEFAULT: routed(plain), TRAINED: routed(better),
        "dense": dense(base), "dense, trained": dense(trained),
        "scorer, trained": scored(side.skills, lambda task: part_features(better, task)[1], weights),
    }  # fmt: skip
    if reranker is not None:
        flat = text_form("flat", options.reranker_tokens, trained.skills)
        methods["reranked, trained"] = reranked(side.skills, better, reranker, flat, options.candidates)
    return methods
