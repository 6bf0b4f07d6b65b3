"""Trains the packaged weights of the local decomposer: `python -m tasks.retrieve.train.clauses ROOT`.

ROOT serves the index whose rows are the hints; the requests and their steps are `REQUESTS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from storage.root import Root
from storage.served import require_served
from tasks.models.protocols import PartEncoder
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.compose.decompose.chain import BEGIN, INSIDE, OUT
from tasks.retrieve.compose.decompose.clause_features import features
from tasks.retrieve.compose.decompose.clauses import JOINS, Clause, clauses
from tasks.retrieve.compose.decompose.hint_features import hint_features
from tasks.retrieve.compose.decompose.local import FILE, ClauseModel, LocalDecomposer, clause_vectors
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.rounds import HINTS
from tasks.retrieve.routing.router import Router
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.train.clause_chain import LabelledClauses, Penalties, train_chain

REQUESTS = FILE.with_name("requests.jsonl")
_HELD = 0.4  # of a clause, that a step must hold for the clause to be its own
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """A request written for this project: where each step stands, as spans, and its direct dependencies."""

    text: str
    steps: tuple[tuple[tuple[int, int], ...], ...]
    edges: tuple[tuple[int, int], ...]


def read_requests(file: Path = REQUESTS) -> list[WrittenRequest]:
    """Return the requests of a file of JSON lines `{request, steps: [[[start, end]]], edges: [[a, b]]}`."""
    found = []
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        steps = tuple(tuple((a, b) for a, b in spans) for spans in row["steps"])
        found.append(WrittenRequest(row["request"], steps, tuple((a, b) for a, b in row["edges"])))
    return found


def labels_of(request: WrittenRequest, found: Sequence[Clause]) -> list[int]:
    """Return what each clause is by the request's steps: it begins one, continues one, or is left out."""
    labels, begun = [], set()
    for clause in found:
        held = [
            max((min(b, clause.end) - max(a, clause.start) for a, b in spans), default=0)
            for spans in request.steps
        ]
        best = int(np.argmax(held)) if held else 0
        if not held or held[best] < _HELD * (clause.end - clause.start):
            labels.append(OUT)
        else:
            labels.append(INSIDE if best in begun else BEGIN)
            begun.add(best)
    return labels


def train(
    requests: Sequence[WrittenRequest],
    router: Router,
    encoder: PartEncoder,
    penalties: Penalties | None = None,
) -> tuple[ClauseModel, ClauseModel]:
    """Return the models of the first round and of those with hints.

    The hints that the second learns from are those that a first round finds that has not seen the request.
    """
    cut = [clauses(request.text) for request in requests]
    given = [
        LabelledClauses(
            features(r.text, found), [JOINS.index(c.join) for c in found],
            clause_vectors(encoder, r.text, found), labels_of(r, found),
        )
        for r, found in zip(requests, cut, strict=True)
    ]  # fmt: skip
    order = np.random.default_rng(1).permutation(len(requests))
    hinted: dict[int, LabelledClauses] = {}
    for fold in range(_FOLDS):
        own = order[fold::_FOLDS].tolist()
        unseen = train_chain([given[i] for i in order.tolist() if i not in set(own)], penalties)
        first = LocalDecomposer(encoder, models=(unseen, unseen))
        for i in own:
            hinted[i] = _with_hints(requests[i], given[i], cut[i], first, Matcher(router))
    return train_chain(given, penalties), train_chain([hinted[i] for i in range(len(given))], penalties)


def _with_hints(
    request: WrittenRequest,
    given: LabelledClauses,
    found: Sequence[Clause],
    first: LocalDecomposer,
    matcher: Matcher,
) -> LabelledClauses:
    draft = first.decompose(request.text, None, matcher)
    hints = matcher.hints(tuple(step.text for step in draft.steps) or (request.text,), HINTS)
    more = hint_features(found, hints, matcher)
    names = [[*own, *others] for own, others in zip(given.names, more, strict=True)]
    return LabelledClauses(names, given.joins, given.vectors, given.labels)


def save(models: tuple[ClauseModel, ClauseModel], file: Path) -> None:
    """Write both models as `packaged_models` reads them, in half precision."""
    held: dict[str, Any] = {}
    for name, model in zip(("first", "hinted"), models, strict=True):
        held[f"{name}/names"] = np.array(sorted(model.of_names, key=model.of_names.__getitem__))
        for part in ("weights", "centre", "axes", "of_vectors", "pairs"):
            held[f"{name}/{part}"] = getattr(model, part).astype(np.float16)
    np.savez_compressed(file, **held)


def main() -> None:
    """Train on all requests and write the packaged weights."""
    root = Root(sys.argv[1])
    name = require_served(root).model["name"]
    index = ServedIndex(root, encoder=name, classifier=LocalClassifier)
    _, (router, encoder) = index.read(lambda now: (now.searcher().router, now.encoder))
    save(train(read_requests(), router, encoder), FILE)


if __name__ == "__main__":
    main()
