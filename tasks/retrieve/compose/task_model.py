"""The task model: reads a task once; tells what its words are, what its steps need and seek.

Heads on the states of the adapted encoder; `data/steps-1.md` is the card.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.models.adapted_encoder import WIDTH, AdaptedEncoder
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit
from tasks.retrieve.compose.drafts import DraftStep, Span

FILE = Path(__file__).parent / "data" / "steps-1.npz"
WORD = re.compile(r"\w+|[^\w\s]")
# What a pair of steps is: neither needs the other, the later told the earlier, or the earlier the later.
NEITHER, ONWARD, BACKWARD = 0, 1, 2
_READINGS = 4  # that are kept: the task's, and those of rewritten steps
APART = 3  # steps told so far apart, and farther, are alike
_Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TaskReading:
    """A task's words, each `task[start:end]`, and their states, shape `(words, 384)`."""

    task: str
    words: tuple[Span, ...]
    states: Vectors

    def pooled(self, spans: Sequence[Span]) -> Vectors:
        """Return the mean state of the words in some spans, shape `(384,)`; that of all words without any."""
        inside = [
            i for i, (a, b) in enumerate(self.words) if any(a < end and b > start for start, end in spans)
        ]
        chosen = self.states[inside] if inside else self.states
        return np.asarray(chosen.mean(axis=0)) if len(chosen) else np.zeros(WIDTH, dtype=np.float32)


class TaskModel:
    """Reads tasks.

    `arrays` holds the adapters (see `AdaptedEncoder`), and of the heads `label.w` `(3, 384)`, `label.b`,
    `moves` `(3, 3)`; `pair.w1` `(hidden, 3 * 384 + 4)`, `pair.b1`, `pair.w2` `(3, hidden)`, `pair.b2`;
    `query.w` `(384, 384)`, `query.b`.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._encoder = AdaptedEncoder(arrays)
        heads = {name: value for name, value in arrays.items() if not name[0].isdigit()}
        self._heads: dict[str, _Numbers] = {n: np.asarray(v, dtype=np.float32) for n, v in heads.items()}
        self.moves = self._heads["moves"].astype(np.float64)
        self.read = functools.lru_cache(maxsize=_READINGS)(self._read)

    def _read(self, task: str) -> TaskReading:
        """Return the reading of a task; `read` keeps the last ones."""
        found = self._encoder.read(task)
        placed = placed_words(task, found.spans)
        states = found.states[[place for _, place in placed]]
        return TaskReading(task, tuple(word for word, _ in placed), states)

    def labels(self, reading: TaskReading) -> npt.NDArray[np.float64]:
        """Return the scores of each word's labels (`local`), shape `(words, 3)`."""
        scores = reading.states @ self._heads["label.w"].T + self._heads["label.b"]
        return np.asarray(scores, dtype=np.float64)

    def pairs(self, reading: TaskReading, steps: Sequence[Sequence[Span]]) -> npt.NDArray[np.float64]:
        """Return what each pair of steps is, told in order: probabilities, shape `(steps, steps, 3)`.

        Only pairs `i < j` are filled; the others are 0.
        """
        own, n = [reading.pooled(spans) for spans in steps], len(steps)
        shares = np.zeros((n, n, 3))
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
        if not pairs:
            return shares
        rows = np.stack(
            [np.concatenate([own[i], own[j], own[i] * own[j], _apart(i, j, n)]) for i, j in pairs]
        )
        h = self._heads
        scores = _gelu(rows @ h["pair.w1"].T + h["pair.b1"]) @ h["pair.w2"].T + h["pair.b2"]
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        for (i, j), row in zip(pairs, likely / likely.sum(axis=1, keepdims=True), strict=True):
            shares[i, j] = row
        return shares

    def sought(self, task: str, steps: Sequence[DraftStep]) -> Vectors:
        """Return what steps of a task seek, `(steps, 384)`; of rewritten ones also by their own text."""
        own = self.queries(self.read(task), [step.spans for step in steps])
        for place, step in enumerate(steps):
            if step.rewritten:
                own[place] += self.queries(self.read(step.text), [((0, len(step.text)),)])[0]
        return unit(own)

    def queries(self, reading: TaskReading, steps: Sequence[Sequence[Span]]) -> Vectors:
        """Return what each step seeks among vectors of name and description, shape `(steps, 384)`."""
        if not steps:
            return np.empty((0, WIDTH), dtype=np.float32)
        own = np.stack([reading.pooled(spans) for spans in steps])
        return unit(own @ self._heads["query.w"].T + self._heads["query.b"])


def placed_words(text: str, tokens: Sequence[Span]) -> list[tuple[Span, int]]:
    """Return the words and signs of a text, each with the place of the first token in it."""
    begins = {start: place for place, (start, end) in reversed(list(enumerate(tokens))) if end > start}
    words = [match.span() for match in WORD.finditer(text)]
    first = (next((at for at in range(*word) if at in begins), None) for word in words)
    return [(word, begins[at]) for word, at in zip(words, first, strict=True) if at is not None]


def _apart(i: int, j: int, steps: int) -> _Numbers:
    """Return how far apart two steps are told, as one of three, and whether the later is the last."""
    row = np.zeros(APART + 1, dtype=np.float32)
    row[min(j - i, APART) - 1] = 1
    row[APART] = float(j == steps - 1)
    return row


def _gelu(rows: _Numbers) -> _Numbers:
    """Return GELU by its tanh approximation (Hendrycks and Gimpel, 2016, section 2), as in training."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (rows + np.float32(0.044715) * rows * rows * rows)
    return np.asarray(np.float32(0.5) * rows * (1 + np.tanh(inner)))


@functools.lru_cache(maxsize=1)
def packaged_model() -> TaskModel:
    """Return the packaged model, loaded once a process."""
    with np.load(FILE, allow_pickle=False) as held:
        return TaskModel({name: held[name] for name in held.files})
