"""Gives the cues of the local classifier their weights: `python -m tasks.parse.fit TRAIN.jsonl`.

Multinomial logistic regression with an L2 penalty, fitted by accelerated gradient descent; no chance is
involved except in the folds, whose seed is fixed.
"""

from __future__ import annotations

import argparse
import json
import sys
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
from tasks.parse.classify import FragmentInContext, read_fragments
from tasks.parse.cues import find_cues
from tasks.parse.local import RuleClassifier, softmax

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PENALTY = 2e-3
# A label that its annotator doubted counts for less.
DOUBTED = 0.6
# How far rare types are weighed up: 0 not at all, 1 until all types weigh the same.
BALANCE = 0.3
RAREST_CUE = 4
ITERATIONS = 300


@dataclass(frozen=True, slots=True)
class Labelled:
    """A fragment with the type someone gave it; `doubted` where another might well differ."""

    fragment: FragmentInContext
    doc_id: str
    node_type: str
    doubted: bool


class Agreement(NamedTuple):
    """How well answers agree with labels, each in [0, 1]; `f1` has one value for each of `NODE_TYPES`."""

    accuracy: float
    macro_f1: float
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
            msg = (
                f"{path}: {fragment.fragment_id} has no doc_id, or no node_type among {', '.join(NODE_TYPES)}"
            )
            raise WrongInput(msg)
    return [
        Labelled(fragment, record["doc_id"], record["node_type"], record.get("confidence") == "low")
        for fragment, record in zip(fragments, records, strict=True)
    ]


def fit_weights(rows: Sequence[Labelled]) -> dict[str, list[float]]:
    """Return `{cue: [a weight for each of NODE_TYPES]}`, rounded to 2 decimals, cues in alphabetical order.

    Cues found in fewer than 4 rows are left out.
    """
    found = [find_cues(row.fragment) for row in rows]
    counts = Counter(cue for cues in found for cue in cues)
    columns = {cue: k for k, cue in enumerate(sorted(c for c, n in counts.items() if n >= RAREST_CUE))}
    design = np.zeros((len(rows), len(columns)))
    for row, cues in enumerate(found):
        design[row, [columns[cue] for cue in cues if cue in columns]] = 1.0
    labels = _labels(rows)
    share = np.bincount(labels, minlength=len(NODE_TYPES)) / len(rows)
    emphasis = np.array([DOUBTED if row.doubted else 1.0 for row in rows]) * share[labels] ** -BALANCE
    weights = _descend(design, labels, emphasis / emphasis.sum())
    return {cue: [round(w, 2) for w in weights[k].tolist()] for cue, k in columns.items()}


def _descend(design: Floats, labels: Ints, emphasis: Floats) -> Floats:
    """Minimise the weighted log loss plus the penalty (Nesterov, step 1/L); shape `(cues, types)`."""
    target = np.eye(len(NODE_TYPES))[labels]
    step = 1.0 / (0.5 * np.linalg.norm(design * np.sqrt(emphasis)[:, None], 2) ** 2 + PENALTY)
    weights = ahead = np.zeros((design.shape[1], len(NODE_TYPES)))
    for k in range(ITERATIONS):
        residual = (softmax(design @ ahead) - target) * emphasis[:, None]
        moved = ahead - step * (design.T @ residual + PENALTY * ahead)
        ahead = moved + k / (k + 3) * (moved - weights)
        weights = moved
    return weights


def cross_validate(rows: Sequence[Labelled], folds: int = 5, seed: int = 0) -> Agreement:
    """Return the agreement on held-out rows; all fragments of a document fall into one fold."""
    documents = sorted({row.doc_id for row in rows})
    shuffled = np.random.default_rng(seed).permutation(len(documents))
    fold = {doc_id: place % folds for doc_id, place in zip(documents, shuffled.tolist(), strict=True)}
    answers = [""] * len(rows)
    for held_out in range(folds):
        weights = fit_weights([row for row in rows if fold[row.doc_id] != held_out])
        places = [k for k, row in enumerate(rows) if fold[row.doc_id] == held_out]
        typed = RuleClassifier(weights).classify([rows[k].fragment for k in places])
        for k, answer in zip(places, typed, strict=True):
            answers[k] = answer.node_type
    return agreement([row.node_type for row in rows], answers)


def agreement(labels: Sequence[str], answers: Sequence[str]) -> Agreement:
    """Return accuracy, and F1 of each type and their plain mean; a type that nobody named scores 0."""
    pairs = Counter(zip(labels, answers, strict=True))
    named = Counter(labels) + Counter(answers)
    f1 = {kind: 2 * pairs[kind, kind] / max(1, named[kind]) for kind in NODE_TYPES}
    right = sum(pairs[kind, kind] for kind in NODE_TYPES)
    return Agreement(right / max(1, len(labels)), sum(f1.values()) / len(f1), f1)


def dump_weights(weights: dict[str, list[float]]) -> str:
    """Return weights as JSON with one cue a line, so that a change of one cue is a change of one line."""
    lines = [f"{json.dumps(cue)}: {json.dumps(row)}" for cue, row in weights.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _labels(rows: Sequence[Labelled]) -> Ints:
    return np.array([NODE_TYPES.index(row.node_type) for row in rows], dtype=np.int64)


def main(arguments: Sequence[str] | None = None) -> None:
    """Cross-validate, report on standard output, fit on all rows and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, help="labelled fragments, JSON lines")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data" / "cue_weights.json")
    options = parser.parse_args(arguments)
    rows = read_labelled(options.train)
    sys.stdout.write(json.dumps({"rows": len(rows), **cross_validate(rows)._asdict()}, indent=2) + "\n")
    options.out.write_text(dump_weights(fit_weights(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
