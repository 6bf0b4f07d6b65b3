"""Own requests: what those of a root and what served them teach of reading, if it holds for others too.

The weight of reading beside the legs and the fit of what is read are learned of three fifths of the root's
own requests, with as much of the requests that were held out when the package's were learned. The other two
fifths of both decide whether that is better. Requests are told apart by their skill, of copies the first.

One figure has to gain, the log loss of the own ones, by more than chance gives: its mean gain a skill, less
what a t-test takes (one-sided, .05). Of draws with nothing to learn 8 of 523 passed (60 to 300 requests,
seeds that the gate was not chosen by), of clicks at random 1 of 93 among the first ten and 5 of 238 among the
first three.

The least probability is set so that as many of the package's are refused as before: on own requests that all
have their skill, lowering it is free.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, stdtrit

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field
from tasks.retrieve.routing.fit import DECIDING, packaged_fit
from tasks.retrieve.routing.fit import FILE as FIT
from tasks.retrieve.routing.postings import Sketches
from tasks.retrieve.routing.reranker import REACHES, Reach
from tasks.retrieve.routing.router import Router
from tasks.train.search.reading_fit import (
    Flags,
    Numbers,
    ReadResults,
    counts_by_pool,
    fit_reading,
    read_results,
    surest_of,
)
from tasks.train.search.requests import (
    FOREIGN,
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
_CHANCE = 0.05  # of a gain that is none
_MARGIN, _FEW = 0.005, 2  # a figure that moved less, or by no more requests than these, is the same
MOST = 20_000  # lines that are used, the last ones
_GAINS = "log_loss"  # decides
# Which way each figure is better.
_RISES = {"hit@1": 1, "mrr@3": 1, _GAINS: -1, "wrongly_refused": -1, "wrongly_accepted": -1}
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
    asked: Sequence[OwnRequest], doc_ids: Sequence[str], router: Router, sketches: Sketches
) -> tuple[Requests, dict[str, int]]:
    """Return the requests whose skill is among `doc_ids`, in any letter case, with what a router finds.

    Returned with them is how many were left out: `unknown` (their skill is not served), `contradicting` (the
    same pair was kept and not kept), `beyond` (lines before the last `MOST`).

    Raises:
        WrongInput: Of a side too few requests have their skill; nothing was looked for yet.
    """
    places = {doc_id.lower(): row for row, doc_id in enumerate(doc_ids)}
    told, unknown = dict[tuple[str, int], set[bool]](), set[tuple[str, str]]()
    for one in asked[-MOST:]:
        text, row = one.query.strip(), places.get(one.doc_id.lower())
        if row is None:
            unknown.add((text, one.doc_id.lower()))
        elif text:
            told.setdefault((text, row), set()).add(one.kept)
    known = [(text, row, True in kept) for (text, row), kept in told.items() if len(kept) == 1]
    left = {"unknown": len(unknown), "contradicting": len(told) - len(known)}
    left["beyond"] = max(0, len(asked) - MOST)
    kinds = np.array([OWN if kept else NEAR for *_, kept in known], dtype=np.str_)
    require_enough(kinds, np.arange(len(kinds)) % 2 * _DECIDING, left)  # at once, whatever their skills
    of = {row: copies_of(row, sketches) for row in {row for _, row, _ in known}}
    lead = {row: min(of[row], key=lambda copy: doc_ids[copy].lower()) for row in of}
    gold = np.array([lead[row] for _, row, _ in known], dtype=np.int64)
    folds = np.array([_fold(doc_ids[row]) for row in gold.tolist()], dtype=np.int64)
    require_enough(kinds, folds, left)
    alike = {
        row: of[row] | frozenset(np.flatnonzero(router.vectors @ router.vectors[row] >= _SERVES).tolist())
        for row in of
    }
    copies, unsure = ([some[row] for _, row, _ in known] for some in (of, alike))
    texts = [text for text, *_ in known]
    first = first_of(router, texts, {doc_id: row for row, doc_id in enumerate(doc_ids)})
    return Requests(texts, kinds, gold, folds, *first, copies, unsure), left


def require_enough(kinds: npt.NDArray[np.str_], folds: Rows, left: Mapping[str, int]) -> None:
    """Raise `WrongInput` if too few requests with their skill teach or decide; `left` were left out."""
    decides = folds[kinds == OWN] < _DECIDING
    teach, decide = int((~decides).sum()), int(decides.sum())
    if min(teach, decide) < LEAST:
        others = ", ".join(f"{n} {name}" for name, n in left.items())
        msg = (
            f"{teach + decide} requests were kept by a served skill: by their skills {teach} teach and "
            f"{decide} decide; at least {LEAST} must on each side: give more, of other skills ({others})"
        )
        raise WrongInput(msg)


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


def packaged_numbers(rerank: str) -> Tuning:
    """Return the package's numbers of a way of reading."""
    fit = packaged_fit(rerank)
    assert fit.reading is not None  # noqa: S101 (the packaged model has each way of reading)
    return Tuning(REACHES[rerank].weight, fit.reading, fit.least)


def figures(results: ReadResults, numbers: Tuning) -> dict[str, float]:
    """Return how well results do under such numbers, `_RISES` by name."""
    chances = expit(results.features @ numbers.reading)
    whole = results.pool == "whole"
    starts = np.flatnonzero(results.place[whole] == 0)
    best = np.maximum.reduceat(results.right[whole] / (results.place[whole] + 1), starts)
    losses = _losses(results, numbers)
    return {
        "hit@1": float((best == 1).mean()),
        "mrr@3": float(best.mean()),
        _GAINS: float(sum(losses.values())),
        "wrongly_refused": float((surest_of(results, chances, "whole") < numbers.least).mean()),
        "wrongly_accepted": _wrongly_accepted(results, chances >= numbers.least),
    }


def _wrongly_accepted(results: ReadResults, fits: Flags) -> float:
    """Return the share of lists of which nothing serves, and in whose first results something fits."""
    accepted = [surest_of(results, fits.astype(float), pool) for pool in ("without", FOREIGN)]
    near = results.pool == NEAR  # of it one skill is known, wherever it stands
    accepted.append((fits & (results.place < DECIDING))[near].astype(float))
    every = np.concatenate(accepted)
    return float(every.mean()) if len(every) else 0.0


def _losses(results: ReadResults, numbers: Tuning) -> dict[int, float]:
    """Return what the requests of each skill add to the log loss."""
    chances = expit(results.features @ numbers.reading)
    likely, counts = np.where(results.right, chances, 1 - chances), counts_by_pool(results)
    losses = -counts * np.log(np.maximum(likely, 1e-9)) / counts.sum()
    skills, where = np.unique(results.group, return_inverse=True)
    return dict(zip(skills.tolist(), np.bincount(where, losses).tolist(), strict=True))


def results_of(read: Read, decides: bool, reach: Reach, weight: float) -> ReadResults:
    """Return the results of one side of requests; `decides` says which side."""
    rows = _side(read[0], decides)
    return read_results(read[0], rows, read[1][rows], reach._replace(weight=weight))


def _side(held: Requests, decides: bool) -> Rows:
    return np.flatnonzero((held.folds < _DECIDING) == decides)


def tuned(own: Read, packaged: Read, reach: Reach, now: Tuning, base: Tuning) -> Tuning:
    """Return what the learning sides teach: of what loses nothing on the package's, what gains most.

    `now` is what is used, `base` what the package's requests are measured with.
    """

    @functools.cache
    def results(weight: float) -> tuple[ReadResults, ReadResults]:
        return results_of(own, False, reach, weight), results_of(packaged, False, reach, weight)

    before = [figures(results(one.weight)[side], one) for side, one in enumerate((now, base))]

    def gain(tried: Tuning, name: str) -> float:
        """Return what a figure of the own side gains, nothing if the package's lose."""
        mine, others = (figures(one, tried) for one in results(tried.weight))
        return _gain(before[0], mine, name) if _loses_less(before[1], others, _MARGIN / 2) else 0.0

    weights = [now._replace(weight=weight) for weight in sorted(_WEIGHTS, key=lambda w: abs(w - now.weight))]
    best = max([now, *weights], key=lambda one: round(gain(one, "mrr@3"), 3))  # of equals what moves least
    mine, others = results(best.weight)
    times = max(1, round(len(others.right) / len(mine.right)))  # each half counts as much
    both = (np.concatenate([*[a] * times, b]) for a, b in zip(mine, others, strict=True))
    reading, _ = fit_reading(ReadResults(*both))

    def refusing_as_often(weights: Numbers) -> Tuning:
        """Return numbers whose least probability refuses as many of the package's as its own does."""
        surest = surest_of(others, expit(others.features @ weights), "whole")
        least = float(np.quantile(surest, before[1]["wrongly_refused"]))
        return best._replace(reading=weights, least=round(least, 4))

    parts = [refusing_as_often(np.round(now.reading + part * (reading - now.reading), 4)) for part in _PARTS]
    return max([best, *parts], key=lambda one: round(gain(one, _GAINS), 4))


def _standing_first(own: Requests) -> list[float]:
    """Return by skill how much oftener it stands first of what the legs find than third.

    Where that is chance it was picked at random, and how sure one can be of it is no use to anybody.
    """
    found = dict[int, float]()
    for row in _side(own, True).tolist():
        if own.kinds[row] == OWN:
            places = np.flatnonzero(np.isin(own.first[row, :DECIDING], list(own.copies[row])))
            skill = int(own.gold[row])
            found[skill] = found.get(skill, 0.0) + float((1 - places).sum())
    return [*found.values()]


def beyond_chance(gains: Sequence[float]) -> bool:
    """Tell whether gains, one of each skill, are more in sum than chance gives: a t-test, one-sided."""
    n = len(gains)
    if n < 2:  # of one skill nothing tells what chance does
        return False
    return bool(np.mean(gains) > stdtrit(n - 1, 1 - _CHANCE) * np.std(gains, ddof=1) / n**0.5)


def _gain(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float:
    return _RISES[name] * (after[name] - before[name])


def _loses_less(before: Mapping[str, float], after: Mapping[str, float], margin: float) -> bool:
    return all(_gain(before, after, name) >= -margin for name in _RISES)


def judged(
    own: Requests, odds: Callable[[Requests], Numbers], rerank: str, reach: Reach, now: Tuning
) -> tuple[Tuning, dict[str, Any]]:
    """Return what own requests teach, and both sides' figures that decide, before and after.

    Before is `now` for the own ones, and the packaged numbers for the package's: what is lost there does not
    add up from one tuning to the next.
    """
    mine, others, base = (own, odds(own)), held_out(rerank), packaged_numbers(rerank)
    found = tuned(mine, others, reach, now, base)

    def deciding(read: Read, by: Tuning) -> ReadResults:
        return results_of(read, True, reach, by.weight)

    told = {
        name: [figures(deciding(read, by), by) for by in (before, found)]
        for name, read, before in (("own", mine, now), ("packaged", others, base))
    }
    was, will = (_losses(deciding(mine, by), by) for by in (now, found))
    better = (
        beyond_chance([was[skill] - will[skill] for skill in was])
        and beyond_chance(_standing_first(own))
        and _loses_less(told["own"][0], told["own"][1], max(_MARGIN, _FEW / max(len(_side(own, True)), 1)))
        and _loses_less(told["packaged"][0], told["packaged"][1], _MARGIN)
    )
    return found, {**told, "better": better}
