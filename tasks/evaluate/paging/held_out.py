"""Held-out scorers for the documents that the packaged scorer was fitted on.

What is measured on a document that a scorer was fitted on is too good. The fit keeps, beside the packaged
scorer, one for each fold of its documents, fitted to the documents of all other folds: a bench pages the
documents of a fold by it, however few of them it has.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.retrieve.paging.scorer import Scorer, scorer_of

FITTED = Path(__file__).parents[1] / "data" / "paging_fitted.json"
SEED = 42  # of the folds


@dataclass(frozen=True, slots=True)
class Fitted:
    """What the packaged scorer was fitted on."""

    folds: Mapping[str, int]  # of each body, by its digest
    scorers: Sequence[Scorer]  # of each fold, fitted to the bodies of all others
    packaged: str  # digest of the file with the scorer that was fitted to all of them


@functools.cache
def fitted(path: Path = FITTED) -> Fitted:
    """Return what the packaged scorer was fitted on; ValueError: it was with other features than today's."""
    found = json.loads(path.read_text("utf-8"))
    return Fitted(found["folds"], [scorer_of(scorer) for scorer in found["scorers"]], found["packaged"])


def digest(text: str) -> str:
    """Return the digest by which a body, or a file with a scorer, is named."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def held_out_scorer(body: str) -> Scorer | None:
    """Return a scorer that never saw a body; None: nor did the packaged one."""
    fold = fitted().folds.get(digest(body))
    return None if fold is None else fitted().scorers[fold]
