"""Labelled fragments to learn from, and how well answers agree with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import WrongInput
from storage.jsonl import read_lines
from storage.schemas import NODE_TYPES
from tasks.evaluate.measures.statistics import calibration, calibration_error
from tasks.parse.classify.protocol import FragmentInContext, read_fragments


@dataclass(frozen=True, slots=True)
class Labelled:
    """A fragment with the type someone gave it; `doubted` where another might well differ."""

    fragment: FragmentInContext
    doc_id: str
    node_type: str
    doubted: bool


class Agreement(NamedTuple):
    """How well answers agree with labels, each in [0, 1].

    `f1` has a value for each of `NODE_TYPES`, `undoubted` is the accuracy on rows that nobody doubted,
    `calibration_error` the expected calibration error over ten bins of confidence.
    """

    accuracy: float
    macro_f1: float
    undoubted: float
    calibration_error: float
    f1: dict[str, float]


def read_labelled(path: Path) -> list[Labelled]:
    """Return labelled fragments: the lines of `read_fragments` with doc_id, node_type and confidence.

    Raises:
        WrongInput: As `read_fragments`, or a line without document or with an unknown type.
    """
    fragments = list(read_fragments(path))
    records = [record for _, record in read_lines(path, "{id, doc_id, node_type, ...}")]
    for fragment, record in zip(fragments, records, strict=True):
        if record.get("node_type") not in NODE_TYPES or "doc_id" not in record:
            known = ", ".join(NODE_TYPES)
            raise WrongInput(f"{path}: {fragment.fragment_id} has no doc_id, or no node_type among {known}")
    return [
        Labelled(
            fragment,
            record["doc_id"],
            record["node_type"],
            "low" in (record.get("confidence"), record.get("agreed_confidence")),
        )
        for fragment, record in zip(fragments, records, strict=True)
    ]


def agreement(rows: Sequence[Labelled], given: npt.NDArray[np.float64]) -> Agreement:
    """Return how well probabilities, shape `(len(rows), 6)`, agree; a type that nobody named scores 0."""
    labels = np.array([NODE_TYPES.index(row.node_type) for row in rows])
    answers = given.argmax(axis=1)
    right = labels == answers
    sure = ~np.array([row.doubted for row in rows])
    pairs = Counter(zip(labels.tolist(), answers.tolist(), strict=True))
    named = Counter(labels.tolist()) + Counter(answers.tolist())
    f1 = {kind: 2 * pairs[k, k] / max(1, named[k]) for k, kind in enumerate(NODE_TYPES)}
    return Agreement(
        float(right.mean()),
        sum(f1.values()) / len(f1),
        float(right[sure].mean()) if sure.any() else 0.0,
        calibration_error(calibration(given.max(axis=1).tolist(), right.tolist())),
        f1,
    )
