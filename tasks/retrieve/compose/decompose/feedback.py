"""Feedback: which number of steps the hinted rows speak for.

SkillWeaver, section 4.4, for a model that knows how likely each number is: a conditional logit over
features of drafts, with weights of `fitted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.fitted import fitted
from tasks.retrieve.compose.decompose.matches import NEAR, Matcher

FEATURES = ("likely", "steps", "mean", "least", "weak", "same", "shared")
_WEAK = 4.0  # standard deviations; a step whose best hint scores less is served badly
_TOP = 3  # best hints of two steps that are compared
_SCALE = 10.0
_SMALLEST = 0.35  # share of a score that is left of it in the smallest index
_LARGE = 20.0  # root of the rows from which an index is like the one that the weights were fitted on
Scores = npt.NDArray[np.float64]


def chosen_count(drafts: Mapping[int, Draft], hints: Sequence[int], matcher: Matcher) -> int:
    """Return the number of steps whose draft the hints speak for.

    Args:
        drafts: By their number of steps, at least one.
        hints: Rows that may serve (algorithm 1).
        matcher: Scores them.
    """
    counts = sorted(drafts, key=lambda n: (-drafts[n].certainty, n))
    if not hints or len(counts) < 2:
        return counts[0]
    matcher.find([step for draft in drafts.values() for step in draft.steps])
    weights = np.array([fitted()["feedback"][name] for name in FEATURES])
    scores = [float(draft_features(drafts[n], hints, matcher) @ weights) for n in counts]
    return counts[int(np.argmax(scores))]


def draft_features(draft: Draft, hints: Sequence[int], matcher: Matcher) -> Scores:
    """Return `FEATURES` of a draft: its likelihood, its size, how well and how apart its steps are served."""
    likely = float(np.log(max(draft.certainty, 1e-6)))
    if not draft.steps:
        return np.array([likely, *(0.0 for _ in FEATURES[1:])])
    rows = list(hints)
    scores = np.stack([
        found.words[rows] + NEAR * found.near[rows]
        for found in matcher.find(draft.steps)
    ])  # fmt: skip
    # No score of a small index is larger than about the root of its rows.
    scores /= min(1.0, max(_SMALLEST, matcher.rows**0.5 / _LARGE))
    best, order = scores.max(axis=1), np.argsort(-scores, axis=1, kind="stable")
    # Steps that nothing serves have nothing in common.
    beside = [(order[i], order[j]) for i, j in pairwise(range(len(best))) if min(best[i], best[j]) >= _WEAK]
    return np.array([
        likely, len(draft.steps), best.mean() / _SCALE, best.min() / _SCALE, float((best < _WEAK).sum()),
        float(sum(a[0] == b[0] for a, b in beside)),
        float(sum(bool(set(a[:_TOP].tolist()) & set(b[:_TOP].tolist())) for a, b in beside)),
    ])  # fmt: skip
