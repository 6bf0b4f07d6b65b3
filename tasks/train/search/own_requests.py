"""Own requests: what those of a root and what served them teach of reading, if it holds for others too.

The weight of reading beside the legs and the fit of what is read are learned of three fifths of the root's
own requests, with as much of the requests that were held out when the package's were learned. The other two
fifths of both decide whether that is better. Requests are told apart by their skill.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from tasks.retrieve.routing.fit import FILE as FIT
from tasks.retrieve.routing.postings import Sketches
from tasks.retrieve.routing.reranker import Reach
from tasks.retrieve.routing.router import Router
from tasks.train.search.reading_fit import (
    Numbers,
    ReadResults,
    counts_by_pool,
    fit_reading,
    read_results,
    surest_of,
)
from tasks.train.search.requests import (
    NEAR,
    Requests,
    Rows,
    copies_of,
    first_of,
    keep_requests,
    kept_requests,
)

HELD = FIT.with_name("requests-held-out.npz")
OWN = "own"  # the kind of a root's own requests that a skill served
LEAST = 20  # requests with their skill on each side, of which more can be told than chance
_PARTS = (0.1, 0.25, 0.5, 0.75, 1.0)  # of the way from the packaged fit to one that was learned
_WEIGHTS = (0.4, 0.6, 1.0, 1.4)
_FOLDS, _DECIDING = 5, 2  # parts, and those of them that decide
_SERVES = 0.8  # from this cosine of heads on, a skill may serve as well
_MARGIN = 0.005  # a figure that moved less is the same
_RISES = {"hit@1": 1, "mrr@3": 1, "log_loss": -1, "wrongly_refused": -1}  # which way each figure is better
Read = tuple[Requests, Numbers]


class OwnRequest(NamedTuple):
    """What was asked, a skill, and whether it served."""

    query: str
    doc_id: str
    kept: bool


def read_own(path: Path) -> list[OwnRequest]:
    """Return the requests of a file of JSON lines; raises `WrongInput` of a line that is none."""
    found = []
    for where, line in read_lines(path, "{query, doc_id, kept}"):
        query, doc_id, kept = (
            text_field(line, "query", where),
            text_field(line, "doc_id", where),
            line.get("kept"),
        )
        if not isinstance(kept, bool):
            msg = f"{where}: `kept` is missing or neither true nor false"
            raise WrongInput(msg)
        found.append(OwnRequest(query, doc_id, kept))
    return found


def own_requests(
    asked: Iterable[OwnRequest], doc_ids: Sequence[str], router: Router, sketches: Sketches
) -> Requests:
    """Return the requests whose skill is among `doc_ids`, in any letter case, with what a router finds."""
    places = {doc_id.lower(): row for row, doc_id in enumerate(doc_ids)}
    known = [one for one in dict.fromkeys(asked) if one.query.strip() and one.doc_id.lower() in places]
    gold = np.array([places[one.doc_id.lower()] for one in known], dtype=np.int64)
    copies = [copies_of(row, sketches) for row in gold.tolist()]
    unsure = [
        some | frozenset(np.flatnonzero(router.vectors @ router.vectors[row] >= _SERVES).tolist())
        for row, some in zip(gold.tolist(), copies, strict=True)
    ]
    texts, kinds = [one.query for one in known], np.array([OWN if one.kept else NEAR for one in known])
    folds = np.array([_fold(one.doc_id) for one in known], dtype=np.int64)
    first = first_of(router, texts, {doc_id: row for row, doc_id in enumerate(doc_ids)})
    return Requests(texts, kinds, gold, folds, *first, copies, unsure)


def _fold(doc_id: str) -> int:
    return int(hashlib.sha256(doc_id.lower().encode()).hexdigest()[:8], 16) % _FOLDS


def keep_held_out(file: Path, held: Requests, rows: Rows, odds: dict[str, Numbers]) -> None:
    """Write what `held_out` needs of some requests and their odds by reading: numbers alone."""
    most = max(own.shape[1] for own in odds.values())
    gold, first = held.gold[rows], held.first[rows, :most]
    folds = np.where(gold < 0, rows, gold) % _FOLDS
    copies, unsure = (
        [frozenset(own) & some[row] for own, row in zip(first.tolist(), rows.tolist(), strict=True)]
        for some in (held.copies, held.unsure)
    )
    scores, fits = (found[rows, :most].round(3) for found in (held.scores, held.fits))
    few = Requests([""] * len(rows), held.kinds[rows], gold, folds, first, scores, fits, copies, unsure)
    keep_requests(file, few, {f"odds_{name}": own.round(3) for name, own in odds.items()})


def held_out(rerank: str) -> Read:
    """Return the packaged held-out requests, and the odds of their first skills by a way of reading."""
    with np.load(HELD, allow_pickle=False) as found:
        return kept_requests(HELD), found[f"odds_{rerank}"]


class Tuning(NamedTuple):
    """Numbers of reading: its weight beside the legs, the weights of its fit, and the least probability."""

    weight: float
    reading: Numbers
    least: float


def figures(results: ReadResults, numbers: Tuning) -> dict[str, float]:
    """Return how well results do under such numbers, `_RISES` by name."""
    chances = expit(results.features @ numbers.reading)
    whole = results.pool == "whole"
    starts = np.flatnonzero(results.place[whole] == 0)
    best = np.maximum.reduceat(results.right[whole] / (results.place[whole] + 1), starts)
    likely = np.where(results.right, chances, 1 - chances)
    counts = counts_by_pool(results)
    return {
        "hit@1": float((best == 1).mean()),
        "mrr@3": float(best.mean()),
        "log_loss": float(-(counts * np.log(np.maximum(likely, 1e-9))).sum() / counts.sum()),
        "wrongly_refused": float((surest_of(results, chances, "whole") < numbers.least).mean()),
    }


def results_of(read: Read, decides: bool, reach: Reach, weight: float) -> ReadResults:
    """Return the results of one side of requests; `decides` says which side."""
    rows = _side(read[0], decides)
    return read_results(read[0], rows, read[1][rows], reach._replace(weight=weight))


def _side(held: Requests, decides: bool) -> Rows:
    return np.flatnonzero((held.folds < _DECIDING) == decides)


def tuned(own: Read, packaged: Read, reach: Reach, now: Tuning) -> Tuning:
    """Return what the learning sides teach: of what loses nothing on the package's, what gains most.

    Raises:
        WrongInput: Of a side too few requests have their skill.
    """
    kept = [int((own[0].kinds[_side(own[0], decides)] == OWN).sum()) for decides in (False, True)]
    if min(kept) < LEAST:
        msg = (
            f"{sum(kept)} lines were kept by a served skill: by their skills {kept[0]} teach and "
            f"{kept[1]} decide; at least {LEAST} must on each side: give more, of other skills"
        )
        raise WrongInput(msg)

    @functools.cache
    def results(weight: float) -> tuple[ReadResults, ReadResults]:
        return results_of(own, False, reach, weight), results_of(packaged, False, reach, weight)

    before = [figures(one, now) for one in results(now.weight)]

    def gain(tried: Tuning, name: str) -> float:
        """Return what a figure of the own side gains, nothing if the package's lose."""
        mine, others = (figures(one, tried) for one in results(tried.weight))
        return _gain(before[0], mine, name) if _least_gain(before[1], others) >= -_MARGIN / 2 else 0.0

    weights = [now._replace(weight=weight) for weight in sorted(_WEIGHTS, key=lambda w: abs(w - now.weight))]
    best = max([now, *weights], key=lambda one: round(gain(one, "mrr@3"), 3))  # of equals what moves least
    mine, others = results(best.weight)
    times = max(1, round(len(others.right) / len(mine.right)))  # each half counts as much
    both = (np.concatenate([*[a] * times, b]) for a, b in zip(mine, others, strict=True))
    reading, least = fit_reading(ReadResults(*both))
    parts = [
        best._replace(
            reading=np.round(now.reading + part * (reading - now.reading), 4),
            least=round(now.least + part * (least - now.least), 4),
        )
        for part in _PARTS
    ]
    return max([best, *parts], key=lambda one: round(gain(one, "log_loss"), 4))


def verdict(own: Sequence[dict[str, float]], packaged: Sequence[dict[str, float]]) -> bool:
    """Tell whether figures after are better than those before: own ones win, and nothing loses."""
    won = max(_gain(own[0], own[1], name) for name in _RISES)
    return (
        won > _MARGIN and min(_least_gain(own[0], own[1]), _least_gain(packaged[0], packaged[1])) >= -_MARGIN
    )


def _gain(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return _RISES[name] * (after[name] - before[name])


def _least_gain(before: dict[str, float], after: dict[str, float]) -> float:
    return min(_gain(before, after, name) for name in _RISES)


def judged(
    own: Requests, odds: Callable[[Requests], Numbers], rerank: str, reach: Reach, now: Tuning
) -> tuple[Tuning, dict[str, Any]]:
    """Return what own requests teach, and both sides' figures that decide, before and after."""
    mine, others = (own, odds(own)), held_out(rerank)
    found = tuned(mine, others, reach, now)
    told = {
        name: [figures(results_of(read, True, reach, by.weight), by) for by in (now, found)]
        for name, read in (("own", mine), ("packaged", others))
    }
    return found, {**told, "better": verdict(told["own"], told["packaged"])}
