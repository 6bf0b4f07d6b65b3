"""What training changed, measured on skills that it never saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.schemas import Qrel
from tasks.evaluate.routing.bench import RoutingBench, RoutingMethod, measure_method, whole
from tasks.evaluate.routing.data import RoutingQuery
from tasks.evaluate.routing.summary import contest, summarise_method
from tasks.models.protocols import Encoder, Vectors
from tasks.models.with_torch.cross_encoder import PairScorer
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.train.queries import TrainingQuery
from tasks.retrieve.train.rows import TextOf

DECISIVE = "mrr@10"
DEFAULT, TRAINED = "default", "default, trained"

"""The router with the base encoder and with the trained one."""


def held_out_bench(queries: Sequence[TrainingQuery]) -> RoutingBench:
    """Return queries as a bench: each has one relevant skill, the one that it was made from."""
    tasks = [RoutingQuery(query.query_id, query.text) for query in queries]
    return RoutingBench(tasks, [Qrel(query.query_id, query.query_id, 1) for query in queries])


def nearest(skills: Sequence[Skill], vectors: Vectors, encoder: Encoder) -> RoutingMethod:
    """Return the method that ranks skills by cosine to the task, equal ones by position."""

    def rank(task: str, k: int) -> list[str]:
        cosines = vectors @ encoder.encode([task])[0]
        return [skills[i].doc_id for i in np.argsort(-cosines, kind="stable")[:k].tolist()]

    return whole(rank)


def routed(router: Router) -> RoutingMethod:
    """Return the default router as a method, near-identical skills not folded."""
    return whole(lambda task, k: [found.doc_id for found in router.rank(task, k, fold=False)])


def scored(
    skills: Sequence[Skill],
    features: Callable[[str], npt.NDArray[np.float64]],
    weights: npt.NDArray[np.float64],
) -> RoutingMethod:
    """Return the method that ranks skills by the weighted sum of features, shape `(skills, f)`."""

    def rank(task: str, k: int) -> list[str]:
        scores = features(task) @ weights
        return [skills[i].doc_id for i in np.argsort(-scores, kind="stable")[:k].tolist()]

    return whole(rank)


def reranked(
    skills: Sequence[Skill], router: Router, scorer: PairScorer, text: TextOf, candidates: int
) -> RoutingMethod:
    """Return the method by which a scorer puts the router's first candidates in order, and no others."""
    by_id = {skill.doc_id: skill for skill in skills}

    def rank(task: str, k: int) -> list[str]:
        found = [one.doc_id for one in router.rank(task, max(k, candidates), fold=False)]
        scores = scorer.score(task, [text(by_id[doc_id]) for doc_id in found[:candidates]])
        order = np.argsort(-scores, kind="stable").tolist()
        return [*(found[i] for i in order), *found[candidates:]][:k]

    return whole(rank)


def measure_training(
    bench: RoutingBench,
    methods: Mapping[str, RoutingMethod],
    step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return the table of methods (`methods`), and each compared with the first, task by task (`contests`).

    `bench` is as `held_out_bench` makes it; `step` is called after each task.
    """
    frames = [measure_method(bench, name, method, step) for name, method in methods.items()]
    rows = pl.concat(frames)
    return {
        "methods": [summarise_method(frame) for frame in frames],
        "contests": [asdict(c) for c in contest(rows, next(iter(methods)))],
    }


def helps(contests: Sequence[Mapping[str, Any]], method: str) -> bool:
    """Tell whether a method beats the baseline in MRR@10: its whole 95 % interval lies above 0."""
    (found,) = (c for c in contests if c["method"] == method and c["measure"] == DECISIVE)
    return float(found["low"]) > 0
