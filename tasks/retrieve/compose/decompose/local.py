"""The local decomposer: labels the clauses of a task by an embedded model, without download or LLM."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import PartEncoder, Vectors
from tasks.retrieve.compose.decompose.chain import BEGIN, INSIDE, OUT, decode
from tasks.retrieve.compose.decompose.clause_features import features
from tasks.retrieve.compose.decompose.clauses import JOINS, Clause, clauses
from tasks.retrieve.compose.decompose.draft import Draft, DraftStep, LeftOut, Span
from tasks.retrieve.compose.decompose.hint_features import hint_features
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.words import classes_of

FILE = Path(__file__).parents[1] / "data" / "clauses-1.npz"
MOST_CLAUSES = 64
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClauseModel:
    """The weights of one labelling: of features by name, of vectors, and of labels after labels by join.

    `of_names` maps a feature to its row of `weights`, shape `(names, 3)`; `centre` `(2 d,)`, `axes`
    `(2 d, k)` and `of_vectors` `(k, 3)` weigh a clause's vector and its first word's; `pairs` is of shape
    `(joins, 3, 3)`.
    """

    of_names: dict[str, int]
    weights: _Numbers
    centre: _Numbers
    axes: _Numbers
    of_vectors: _Numbers
    pairs: _Numbers

    def label(
        self,
        found: Sequence[Clause],
        names: Sequence[Sequence[str]],
        vectors: Vectors,
        most: int,
        exactly: int | None = None,
    ) -> tuple[tuple[int, ...], float]:
        """Return the labels that `decode` finds, and the probability of their number of steps."""
        scores = (vectors - self.centre) @ self.axes @ self.of_vectors
        for row, own in enumerate(names):
            known = [self.of_names[name] for name in set(own) if name in self.of_names]
            scores[row] += self.weights[known].sum(axis=0)
        pairs = self.pairs[[JOINS.index(clause.join) for clause in found]]
        labelled = decode(scores, pairs, most, exactly)
        return labelled.labels, labelled.counts[labelled.labels.count(BEGIN)]


@functools.lru_cache(maxsize=2)
def packaged_models(file: Path = FILE) -> tuple[ClauseModel, ClauseModel]:
    """Return the models of the first round and of the rounds with hints."""
    with np.load(file, allow_pickle=False) as held:
        return _model(held, "first"), _model(held, "hinted")


def _model(held: Any, name: str) -> ClauseModel:  # noqa: ANN401 (numpy does not export its class)
    names = {str(feature): row for row, feature in enumerate(held[f"{name}/names"])}
    given = ("weights", "centre", "axes", "of_vectors", "pairs")
    parts = [held[f"{name}/{part}"].astype(np.float64) for part in given]
    return ClauseModel(names, *parts)


class LocalDecomposer:
    """Cuts a task into clauses and labels each: it begins a step, continues one, or is left out.

    With hints, clauses that one row serves are taken together, one that two rows serve is not, and what
    nothing serves counts less.

    Args:
        encoder: Gives clauses their vectors in the context of the task.
        models: Of the first round and of those with hints; None: the packaged ones.
        most: The largest number of steps.
        exactly: The number of steps, if it is known, which comes before `most`.
    """

    def __init__(
        self,
        encoder: PartEncoder,
        *,
        models: tuple[ClauseModel, ClauseModel] | None = None,
        most: int = 8,
        exactly: int | None = None,
    ) -> None:
        self._encoder, self._models = encoder, models or packaged_models()
        self._most, self._exactly = max(most, exactly or 0), exactly
        self._read: dict[str, tuple[list[Clause], Vectors]] = {}

    @property
    def name(self) -> str:
        """The name that a plan tells."""
        return "local"

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the draft of a task, as `Decomposer` says."""
        found, vectors = self._clauses(task)
        if not found:
            return Draft((), ())
        found, rest = found[:MOST_CLAUSES], found[MOST_CLAUSES:]
        names = features(task, found)
        if hints is not None:
            hinted = hint_features(found, hints, matcher)
            names = [[*own, *more] for own, more in zip(names, hinted, strict=True)]
        model = self._models[hints is not None]
        labels, certainty = model.label(found, names, vectors, self._most, self._exactly)
        if self._exactly is None and not _LATIN.search(task):
            labels = _by_sentences(found, self._most)
        draft = drafted(task, found, labels, certainty)
        if labels.count(BEGIN) == self._most and self._exactly is None:
            free, _ = model.label(found, names, vectors, len(found))
            wanted = {c.start for c, label in zip(found, free, strict=True) if label != OUT}
            draft = _beyond(draft, wanted)
        return _unread(task, draft, rest)

    def _clauses(self, task: str) -> tuple[list[Clause], Vectors]:
        digest = hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()
        if digest not in self._read:
            found = clauses(task)
            self._read = {digest: (found, clause_vectors(self._encoder, task, found[:MOST_CLAUSES]))}
        return self._read[digest]


def clause_vectors(encoder: PartEncoder, task: str, found: Sequence[Clause]) -> Vectors:
    """Return for each clause its vector and its first word's in the context of the task, shape `(n, 2 d)`."""
    if not found:
        return np.empty((0, 0), dtype=np.float32)
    firsts = [(c.start, c.start + len(c.text.split(maxsplit=1)[0])) for c in found]
    vectors = encoder.encode_parts(task, [*((c.start, c.end) for c in found), *firsts])[1:]
    return np.hstack([vectors[: len(found)], vectors[len(found) :]])


def drafted(task: str, found: Sequence[Clause], labels: Sequence[int], certainty: float) -> Draft:
    """Return the draft that clauses with labels make."""
    held: list[list[Clause]] = []
    left: list[Clause] = []
    for clause, label in zip(found, labels, strict=True):
        if label == BEGIN:
            held.append([clause])
        elif label == INSIDE and held:
            held[-1].append(clause)
        elif label == OUT or not held:
            left.append(clause)
    steps = tuple(DraftStep(_text(task, spans), spans) for spans in map(_spans, held))
    out = tuple(LeftOut(c.text, (c.start, c.end), _reason(c)) for c in left)
    return Draft(steps, out, certainty)


def _by_sentences(found: Sequence[Clause], most: int) -> tuple[int, ...]:
    """Return labels that make each sentence a step, the last allowed one holding all that follow.

    The weights were fitted on English: what they say of a script that they have never seen means nothing.
    """
    begins = [clause.start for clause in found if clause.join in ("start", "sentence")][:most]
    return tuple(BEGIN if clause.start in begins else INSIDE for clause in found)


def _beyond(draft: Draft, wanted: set[int]) -> Draft:
    """Return a draft whose left out parts that begin at `wanted` places are told to be steps too many."""
    told = [
        replace(part, reason="beyond-max-steps") if part.span[0] in wanted else part
        for part in draft.left_out
    ]
    return replace(draft, left_out=tuple(told))


def _unread(task: str, draft: Draft, rest: Sequence[Clause]) -> Draft:
    """Return a draft that leaves out the clauses after those that were labelled, too."""
    if not rest:
        return draft
    span = (rest[0].start, rest[-1].end)
    return replace(draft, left_out=(*draft.left_out, LeftOut(task[slice(*span)], span, "too-long")))


def _spans(held: Sequence[Clause]) -> tuple[Span, ...]:
    """Return the spans of clauses; neighbours share one."""
    spans: list[Span] = []
    for clause in held:
        if spans and clause.start - spans[-1][1] <= _GAP:
            spans[-1] = (spans[-1][0], clause.end)
        else:
            spans.append((clause.start, clause.end))
    return tuple(spans)


_GAP = 12  # characters between clauses that stand side by side: a comma and `and then`


def _text(task: str, spans: Sequence[Span]) -> str:
    return " … ".join(" ".join(task[start:end].split()) for start, end in spans)


def _reason(clause: Clause) -> str:
    first = classes_of(clause.text.split(maxsplit=1)[0].strip(",;:.!?"))
    return "own-work" if "own" in first else "context"
