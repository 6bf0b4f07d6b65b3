"""Fits the paging scorer: `python -m tasks.train.paging_scorer --documents D --queries Q --encoder E`.

A logistic regression with an L2 penalty (scikit-learn's). An item of evidence may have several
alternatives, of which one suffices: in each round the one that the fit so far scores best is the positive,
and the units of the others count neither way. Folds are by documents, so that none is on both sides.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from tasks.evaluate.measures.evidence import EvidenceQuery, read_documents, read_queries, spans_in
from tasks.evaluate.paging.bench import FITTED, SEED, digest, prepare_all
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Encoder, Tokenizer
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.paging.facets import ask, ready_for, unit_features
from tasks.retrieve.paging.scorer import FILE, NAMES, SCORER_VERSION, Scorer, leaning, scorer_of
from tasks.retrieve.paging.terms import Floats
from tasks.retrieve.paging.types import PagedDocument
from tasks.train.splits import folds_of

PENALTY = 100.0  # of the squared weights of standardised features
LEAN = 4.0  # times the penalty, for those that lean
ROUNDS = 3  # in which the alternatives are chosen
FOLDS = 9
# Of one item of evidence: its alternatives, each the units that hold it.
Item = list[list[int]]


@dataclass(frozen=True, slots=True)
class Example:
    """One request: the features of all units of its document, and where its evidence stands."""

    query: EvidenceQuery
    features: Floats
    items: Sequence[Item]


def example(query: EvidenceQuery, document: PagedDocument, encoder: Encoder, tokenizer: Tokenizer) -> Example:
    """Return a request as the fit takes it; evidence that lies in headings alone gives no positives."""
    ready = ready_for(document, encoder=encoder, tokenizer=tokenizer)
    matrix = unit_features(ready, *ask(query.query, encoder))
    starts, ends = ready.prepared.units.start, ready.prepared.units.end
    items: list[Item] = []
    for item in query.evidence:
        spans = [span for text in item for span in spans_in(document.body, text)]
        held = [np.flatnonzero((starts < b) & (ends > a)).tolist() for a, b in spans]
        items.append([units for units in held if units])
    return Example(query, matrix, items)


def fit(examples: Sequence[Example], penalty: float = PENALTY) -> Scorer:
    """Return the scorer fitted to requests, at least one with evidence."""
    rows = np.concatenate([e.features for e in examples], axis=1).T
    mean, deviation = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    leans = [np.full(e.features.shape[1], leaning(e.features, mean, deviation)) for e in examples]
    x = (rows - mean) / deviation
    # A column scaled by the root of its penalty has a penalty of 1.
    scale = np.sqrt(np.repeat([penalty, penalty * LEAN], len(NAMES)))
    x = np.concatenate([x, x * np.concatenate(leans)[:, None]], axis=1) / scale
    scorer: Scorer | None = None
    for _ in range(ROUNDS):
        labels, counts = zip(*(_labels(e, scorer) for e in examples), strict=True)
        model = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-8)
        model.fit(x, np.concatenate(labels), sample_weight=np.concatenate(counts))
        weight, lean = np.split(model.coef_[0] / scale, 2)
        scorer = Scorer(mean, deviation, weight, lean, float(model.intercept_[0]))
    assert scorer is not None  # noqa: S101 (there is at least one round)
    return scorer


def _labels(e: Example, scorer: Scorer | None) -> tuple[Floats, Floats]:
    """Return which units are needed, and which count at all."""
    scores = None if scorer is None else scorer.logits(e.features)
    labels, counts = np.zeros(e.features.shape[1]), np.ones(e.features.shape[1])
    for alternatives in e.items:
        counts[[u for units in alternatives for u in units]] = 0
    for alternatives in (a for a in e.items if a):
        best = alternatives
        if scores is not None:
            best = [max(alternatives, key=lambda units: float(scores[units].min()))]
        needed = [u for units in best for u in units]
        labels[needed] = counts[needed] = 1
    return labels, counts


def held_out(examples: Sequence[Example], seed: int) -> dict[int, Scorer]:
    """Return for each fold the scorer fitted to the requests of all other documents."""
    fold = _folds(examples, seed)
    return {k: fit([e for e, own in zip(examples, fold, strict=True) if own != k]) for k in sorted(set(fold))}


def _folds(examples: Sequence[Example], seed: int) -> list[int]:
    """Return the fold of each request; those of one document share theirs."""
    found: list[int] = folds_of([e.query.doc_id for e in examples], FOLDS, seed).tolist()
    return found


def stored(scorer: Scorer) -> dict[str, object]:
    """Return a scorer in the form that `scorer_of` reads."""
    columns = zip(
        scorer.mean.tolist(),
        # A feature that was the same everywhere must not be divided by a deviation rounded to 0.
        np.maximum(scorer.deviation, 1e-6).tolist(),
        scorer.weight.tolist(),
        scorer.lean.tolist(),
        strict=True,
    )
    named = {n: [round(v, 6) for v in four] for n, four in zip(NAMES, columns, strict=True)}
    return {"version": SCORER_VERSION, "bias": round(scorer.bias, 6), "features": named}


def write_fitted(
    path: Path, folds: Mapping[str, int], scorers: Iterable[Mapping[str, Any]], packaged: str
) -> None:
    """Write what a scorer was fitted on, in the form that `fitted` reads: `packaged` is its file's text.

    `folds` has the fold of each body, by the body; `scorers` are in the form that `scorer_of` reads.
    """
    named = sorted((digest(body), fold) for body, fold in folds.items())
    lines = [
        '"what": "bodies that the paging scorer was fitted on, by digest, and scorers that never saw a fold"',
        f'"packaged": "{digest(packaged)}"',
        f'"folds": {json.dumps(dict(named), indent=1)}',
        '"scorers": [\n' + ",\n".join(json.dumps(s, separators=(",", ":")) for s in scorers) + "\n]",
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def main() -> None:
    """Fit, and write the weights and those of held-out scorers, by which `evaluate paging` measures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the exported encoder")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--fitted", type=Path, default=FITTED, help="held-out scorers")
    given = parser.parse_args()
    encoder = OnnxEncoder(given.encoder)
    texts, queries = read_documents(given.documents), read_queries(given.queries)
    documents = prepare_all(texts, queries, encoder=encoder, tokenizer=encoder, classifier=LocalClassifier())
    examples = [example(q, documents[q.doc_id], encoder, encoder) for q in queries]
    found = stored(fit(examples))
    scorer_of(found)
    given.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    folds = zip(examples, _folds(examples, SEED), strict=True)
    drawn = {documents[e.query.doc_id].body: fold for e, fold in folds}
    scorers = [stored(scorer) for _, scorer in sorted(held_out(examples, SEED).items())]
    write_fitted(given.fitted, drawn, scorers, given.out.read_text("utf-8"))


if __name__ == "__main__":
    main()
