"""Fit of skills that were read: how much reading says beside what the legs say, learned on held-out requests.

`tasks.train.search.reranker` calls it after a training: requests that its network learned from cannot tell
how sure it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from tasks.evaluate.measures.statistics import auroc, calibration_by_count, calibration_error
from tasks.retrieve.routing.fit import DECIDING, read_features
from tasks.retrieve.routing.reranker import Reach
from tasks.train.logistic import fit_chance
from tasks.train.search.requests import FOREIGN, NEAR, Requests

_PARTS = 5  # of the held-out requests, each of which is told by what the others taught
_UNSERVED = 0.1  # share of requests that nothing serves, an assumption as in `routing_fit`
_LOST = 0.1  # share of served requests of which it may be told that nothing fits
_PENALTY = 1e-4
_RISING = (1, 2, 3, 4)  # what is found or read can only speak for a skill
Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class ReadResults(NamedTuple):
    """Results by row: features, `(rows, 5)`, as of `FitModel.reading`; whether right; place in its ranking.

    `kind` is the request's, `pool` what was left to be found: `whole`, `without` its skill, `near`, the skill
    that seems to serve alone, or `foreign`, all of which none serves; `group` is alike for requests of one
    skill.
    """

    features: Numbers
    right: Flags
    place: npt.NDArray[np.int64]
    kind: npt.NDArray[np.str_]
    pool: npt.NDArray[np.str_]
    group: npt.NDArray[np.int64]


def read_results(held: Requests, rows: npt.NDArray[np.int64], odds: Numbers, reach: Reach) -> ReadResults:
    """Return the first three results of requests in pools with their skill and without.

    `rows` are the requests that were asked; `odds`, shape `(rows, skills)`, their first skills' scores by
    reading, which `reach` adds to the legs'.
    """
    found = [
        (*told, held.kinds[row], pool, held.gold[row] if held.gold[row] >= 0 else row)
        for row, own in zip(rows.tolist(), odds, strict=True)
        for pool, told in _of_request(held, row, own, reach)
    ]
    return ReadResults(*(np.array(column) for column in zip(*found, strict=True)))


def _of_request(
    held: Requests, row: int, odds: Numbers, reach: Reach
) -> Iterator[tuple[str, tuple[list[float], bool, int]]]:
    skills, kind = held.first[row, : len(odds)], str(held.kinds[row])
    copies, everything = np.isin(skills, list(held.copies[row])), np.ones(len(odds), bool)
    near = kind == NEAR
    without = {"without": ~np.isin(skills, list(held.unsure[row]))}
    pools = {kind: everything} if kind in {NEAR, FOREIGN} else {"whole": everything} | without
    for pool, stays in pools.items():
        there = np.flatnonzero(stays)
        if not len(there):
            continue
        order = np.argsort(-(held.scores[row, there] + reach.part(odds[there])), kind="stable")
        features = read_features(held.fits[row, there], odds[there])
        for place, at in enumerate(order.tolist()):
            own = there[at]
            # Of a near request nothing is known but that its own skill does not serve it.
            if copies[own] if near else place < DECIDING:
                yield pool, (features[at].tolist(), bool(copies[own]) and pool == "whole", place)


def fit_reading(results: ReadResults) -> tuple[Numbers, float]:
    """Return the weights under which what is right is likeliest, and the least probability that is fit."""
    weights = fit_chance(results.features, results.right, _PENALTY, counts_by_pool(results), _RISING)
    served = surest_of(results, expit(results.features @ weights), "whole")
    return weights, float(np.quantile(served, _LOST))


def counts_by_pool(results: ReadResults) -> Numbers:
    """Return how much each result counts, so that a request is as often unserved as is assumed."""
    shares = {"whole": 1 - _UNSERVED} | dict.fromkeys(("without", NEAR, FOREIGN), _UNSERVED / 3)
    counts = np.zeros(len(results.right))
    for pool, share in shares.items():
        counts[results.pool == pool] = share / max((results.pool == pool).sum(), 1)
    return counts


def held_out_fit(results: ReadResults) -> tuple[Numbers, float]:
    """Return each result's probability by what the other parts taught, and the mean least probability."""
    chances, least = np.zeros(len(results.right)), []
    for part in range(_PARTS):
        own = results.group % _PARTS == part
        weights, limit = fit_reading(ReadResults(*(column[~own] for column in results)))
        chances[own] = expit(results.features[own] @ weights)
        least.append(limit)
    return chances, float(np.mean(least))


def reading_report(results: ReadResults) -> dict[str, Any]:
    """Return how well held-out results are told, by kind of request.

    `near` is the area under the curve of right first results against skills that only seem to serve, `ece`
    the expected calibration error of first results, and `nothing` the share of requests told that nothing
    fits: of those whose skill is there, and of those whose is not. Of foreign ones it is the only figure.
    """
    chances, least = held_out_fit(results)
    first = (results.place == 0) & (results.pool == "whole")
    near, told = chances[results.pool == "near"], dict[str, Any]()
    for kind in sorted(set(results.kind.tolist()) - {NEAR, FOREIGN}):
        own = first & (results.kind == kind)
        bins = calibration_by_count(chances[own].tolist(), results.right[own].tolist())
        of = ReadResults(*(column[results.kind == kind] for column in results))
        surest = [surest_of(of, chances[results.kind == kind], pool) for pool in ("whole", "without")]
        told[kind] = {
            "near": auroc(chances[own & results.right].tolist(), near.tolist()),
            "ece": calibration_error(bins),
            "nothing": [float((some < least).mean()) for some in surest],
        }
    return told | {FOREIGN: float((surest_of(results, chances, FOREIGN) < least).mean())}


def surest_of(results: ReadResults, chances: Numbers, pool: str) -> Numbers:
    """Return the highest of each request's chances in a pool."""
    own, place = chances[results.pool == pool], results.place[results.pool == pool]
    return np.maximum.reduceat(own, np.flatnonzero(place == 0)) if len(own) else own
