"""The local classifier, without a model server: cues and words in a linear model and boosted trees."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.schemas import NODE_TYPES
from tasks.parse.classify.cues import find_cues
from tasks.parse.classify.protocol import FragmentInContext, Typed
from tasks.parse.classify.words import find_words

Floats = npt.NDArray[np.float32]
Columns = npt.NDArray[np.int32]
Present = npt.NDArray[np.bool_]


class Forest(NamedTuple):
    """Trees of one depth D; tree t votes for type `t % types`.

    `columns` has the column asked at each inner node, shape `(trees, 2**D - 1)`, children of node k at
    2k+1 (absent) and 2k+2 (present). `leaves` has the votes, shape `(trees, 2**D)`; `start` each type's
    score before any vote.
    """

    columns: Columns
    leaves: Floats
    start: Floats


def tree_scores(forest: Forest, present: Present) -> Floats:
    """Return each type's score, shape `(n, types)`, for rows of cues present, shape `(n, columns)`."""
    scores = np.empty((len(present), len(forest.start)), dtype=np.float32)
    for start in range(0, len(present), _ROWS):
        scores[start : start + _ROWS] = _few_scores(forest, present[start : start + _ROWS])
    return scores


def _few_scores(forest: Forest, present: Present) -> Floats:
    trees, inner = forest.columns.shape
    each, row = np.arange(trees), np.arange(len(present))[:, None] * present.shape[1]
    columns, leaves, held = forest.columns.ravel(), forest.leaves.ravel(), present.ravel()
    node = np.zeros((len(present), trees), dtype=np.intp)
    for _ in range((inner + 1).bit_length() - 1):
        asked = columns.take(node + each * inner) + row
        node *= 2
        node += held.take(asked)
        node += 1
    votes = leaves.take(node + (each * (inner + 1) - inner))
    scores: Floats = votes.reshape(len(present), -1, len(forest.start)).sum(axis=1) + forest.start
    return scores


WEIGHTS = "data/local-4.npz"
_BATCH = 1024
_ROWS = 64  # whose ways through the trees fit the processor's caches
# A small model is never certain; this is also the highest figure that four decimals tell from 1.
SUREST = 0.999
# What all words of a fragment weigh together beside one cue.
_WORDS_WEIGH = 3.0


@dataclass(frozen=True, slots=True)
class Features:
    """The cues and words that a model knows, each with its column; words come after the cues."""

    cues: dict[str, int]
    words: dict[str, int]

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.cues) + len(self.words)

    def of(self, fragment: FragmentInContext) -> tuple[npt.NDArray[np.int64], Floats, int]:
        """Return the columns found, their values, and how many of them are cues: those come first."""
        cues = [self.cues[name] for name in find_cues(fragment) if name in self.cues]
        known = self.words
        # The order of the columns is that in which weights are added, which decides the last bits.
        words = sorted([known[name] for name in find_words(fragment) if name in known])
        values = np.ones(len(cues) + len(words), dtype=np.float32)
        values[len(cues) :] = _WORDS_WEIGH / np.sqrt(max(1, len(words)))
        return np.array(cues + words, dtype=np.int64), values, len(cues)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """What training leaves: features, `linear` of shape `(columns, 6)`, trees, a temperature above 0."""

    features: Features
    linear: Floats
    forest: Forest
    temperature: float

    def probabilities(self, fragments: Sequence[FragmentInContext]) -> npt.NDArray[np.float64]:
        """Return the probability of each of `NODE_TYPES`, shape `(len(fragments), 6)`."""
        present = np.zeros((len(fragments), len(self.features.cues)), dtype=np.bool_)
        linear = np.zeros((len(fragments), len(NODE_TYPES)), dtype=np.float32)
        for row, fragment in enumerate(fragments):
            columns, values, cues = self.features.of(fragment)
            present[row, columns[:cues]] = True
            linear[row] = values @ self.linear[columns]
        mixed = (softmax(linear) + softmax(tree_scores(self.forest, present))) / 2
        return softmax(np.log(mixed + 1e-9) / self.temperature)


class LocalClassifier:
    """Types fragments as in SkillPager, section 3.1, with weights that come with the package.

    The probabilities of a linear model over cues and words and of boosted trees over cues are averaged and
    brought to a temperature that makes the confidence the share of right answers (at least 1/6, at most
    0.999). Deterministic, and independent of the order and number of fragments.

    Args:
        model: As `tasks.parse.train.local_model` makes it; None takes the one in the package.
    """

    name = "local-4"

    def __init__(self, model: LocalModel | None = None) -> None:
        self._model = model or packaged_model()

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order; a tie goes to the type that `NODE_TYPES` names first."""
        answers: list[Typed] = []
        for start in range(0, len(fragments), _BATCH):
            given = self._model.probabilities(fragments[start : start + _BATCH])
            best, sure = given.argmax(axis=1), np.minimum(given.max(axis=1), SUREST)
            answers += [Typed(NODE_TYPES[k], p) for k, p in zip(best.tolist(), sure.tolist(), strict=True)]
        return answers


def softmax(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return each row's softmax; shape `(n, types)` to the same."""
    exact = scores.astype(np.float64)
    powers = np.exp(exact - exact.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@lru_cache(maxsize=1)
def packaged_model() -> LocalModel:
    """Return the model in the package."""
    return load_model(resources.files("tasks.parse").joinpath(WEIGHTS).read_bytes())


def load_model(content: bytes) -> LocalModel:
    """Return a model from the bytes that `save_model` wrote."""
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        cues, words = (bytes(held[name]).decode().split("\n") for name in ("cues", "words"))
        features = Features(
            {name: k for k, name in enumerate(cues)}, {name: len(cues) + k for k, name in enumerate(words)}
        )
        forest = Forest(held["columns"].astype(np.int32), held["leaves"].astype(np.float32), held["start"])
        return LocalModel(features, held["linear"].astype(np.float32), forest, float(held["temperature"]))


def save_model(path: Path, model: LocalModel) -> None:
    """Write a model without pickle: names as text, weights rounded to 16 bits."""
    np.savez_compressed(
        path,
        cues=_as_bytes(model.features.cues),
        words=_as_bytes(model.features.words),
        linear=model.linear.astype(np.float16),
        columns=model.forest.columns.astype(np.uint16),
        leaves=model.forest.leaves.astype(np.float16),
        start=model.forest.start,
        temperature=np.array(model.temperature),
    )


def _as_bytes(names: Iterable[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer("\n".join(names).encode(), dtype=np.uint8)
