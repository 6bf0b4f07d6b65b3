"""Measures of what a training of routing changed: routers and scorers on skills that it never saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from typing import Any

import numpy as np
import polars as pl

from storage.schemas import Qrel
from tasks.evaluate.routing.bench import RoutingBench, RoutingMethod, measure_method, whole
from tasks.evaluate.routing.data import RoutingQuery
from tasks.evaluate.routing.summary import contest, summarise_method
from tasks.models.with_torch.cross_encoder import PairScorer
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill
from tasks.train.logistic import Numbers
from tasks.train.material import Encoders, Material, Progress, TextOf, text_form
from tasks.train.options import TrainingOptions

DECISIVE = "mrr@10"
DEFAULT, TRAINED = "default", "default, trained"

"""The router with the base encoder and with the trained one."""

_UNFITTED = "named"  # the part of an exact name, which outweighs all others: no weight may touch it


def part_features(router: Router, task: str) -> tuple[list[str], Numbers]:
    """Return the names of the router's parts and their values for a task, shape `(skills, parts)`."""
    parts = {name: part for name, part in router.parts(task).items() if name != _UNFITTED}
    return list(parts), np.stack([np.asarray(part, dtype=np.float64) for part in parts.values()], axis=1)


def measured(
    material: Material,
    base: Encoders,
    trained: Encoders,
    weights: Mapping[str, float],
    reranker: PairScorer | None,
    options: TrainingOptions,
    progress: Progress,
) -> dict[str, Any]:
    """Return `methods`, `contests` with the default router task by task, and `helps`, on held-out skills.

    `weights` are those of the router's parts. A query's one relevant skill is that which it was made from.
    """
    tasks = [RoutingQuery(query.query_id, query.text) for query in material.asked]
    bench = RoutingBench(tasks, [Qrel(query.query_id, query.query_id, 1) for query in material.asked])
    methods = _methods(material, base, trained, np.array(list(weights.values())), reranker, options)
    steps, total = count(1), len(methods) * len(bench.tasks)
    with progress("held-out queries answered") as report:
        frames = [
            measure_method(bench, name, method, lambda: report(next(steps), total))
            for name, method in methods.items()
        ]
    contests = [asdict(one) for one in contest(pl.concat(frames), DEFAULT)]
    return {
        "methods": [summarise_method(frame) for frame in frames], "contests": contests,
        "helps": helps(contests, TRAINED),
    }  # fmt: skip


def helps(contests: Sequence[Mapping[str, Any]], method: str) -> bool:
    """Tell whether a method beats the baseline in MRR@10: its whole 95 % interval lies above 0."""
    (found,) = (c for c in contests if c["method"] == method and c["measure"] == DECISIVE)
    return float(found["low"]) > 0


def _methods(
    material: Material,
    base: Encoders,
    trained: Encoders,
    weights: Numbers,
    reranker: PairScorer | None,
    options: TrainingOptions,
) -> dict[str, RoutingMethod]:
    side = material.held_out
    text = text_form(options.text, options.tokens, base.skills)
    plain, better = side.router(base), side.router(trained)

    def dense(encoders: Encoders) -> RoutingMethod:
        vectors = encoders.skills.encode([text(skill) for skill in side.skills])
        return by_score(side.skills, lambda task: vectors @ encoders.tasks.encode([task])[0])

    methods = {
        DEFAULT: routed(plain), TRAINED: routed(better),
        "dense": dense(base), "dense, trained": dense(trained),
        "scorer, trained": by_score(side.skills, lambda task: part_features(better, task)[1] @ weights),
    }  # fmt: skip
    if reranker is not None:
        flat = text_form("flat", options.reranker_tokens, trained.skills)
        methods["reranked, trained"] = reranked(side.skills, better, reranker, flat, options.candidates)
    return methods


def routed(router: Router) -> RoutingMethod:
    """Return the default router as a method, near-identical skills not folded."""
    return whole(lambda task, k: [found.doc_id for found in router.rank(task, k, fold=False)])


def by_score(skills: Sequence[Skill], scores: Callable[[str], Any]) -> RoutingMethod:
    """Return the method that ranks skills by a task's scores, shape `(skills,)`, equal ones by position."""

    def rank(task: str, k: int) -> list[str]:
        return [skills[i].doc_id for i in np.argsort(-scores(task), kind="stable")[:k].tolist()]

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
