"""The local classifier, without a model server: cues and words in a linear model and boosted trees."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.schemas import NODE_TYPES
from tasks.parse import LOCAL
from tasks.parse.classify.features import (
    PlacedWords,
    Word,
    cue_columns,
    cues_by_place,
    word_columns,
    words_around,
    words_of_headings,
)
from tasks.parse.classify.protocol import FragmentInContext, Typed

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
        leaves = _leaves_reached(forest, present[start : start + _ROWS])
        for at in range(0, len(leaves), _ROWS_SUMMED):
            some = leaves[at : at + _ROWS_SUMMED]
            scores[start + at : start + at + len(some)] = _votes(forest, some)
    return scores


def _votes(forest: Forest, leaves: npt.NDArray[np.uint8]) -> Floats:
    at = leaves + np.arange(len(forest.columns)) * forest.leaves.shape[1]
    votes = forest.leaves.ravel().take(at).reshape(len(leaves), -1, len(forest.start))
    return np.asarray(votes.sum(axis=1) + forest.start)


def _leaves_reached(forest: Forest, present: Present) -> npt.NDArray[np.uint8]:
    """Return the leaf of each tree that each row reaches, shape `(n, trees)`."""
    trees, inner = forest.columns.shape
    # Eight rows a byte: one operation takes all of them past a node, whichever way they go.
    held = np.packbits(present.T, axis=1)
    reaching = np.full((1, trees, held.shape[1]), 0xFF, dtype=np.uint8)
    leaf = np.zeros((trees, 8 * held.shape[1]), dtype=np.uint8)
    for level in range((inner + 1).bit_length() - 1):
        asked = forest.columns[:, 2**level - 1 : 2 ** (level + 1) - 1].T
        with_cue = reaching & held[asked]
        leaf = 2 * leaf + np.unpackbits(np.bitwise_or.reduce(with_cue, axis=0), axis=1)
        reaching = np.stack([reaching ^ with_cue, with_cue], axis=1).reshape(-1, *reaching.shape[1:])
    return leaf.T[: len(present)]


WEIGHTS = f"data/{LOCAL}.npz"
_BATCH = 1024
# Rows whose ways through the trees, and whose votes, fit the processor's caches.
_ROWS, _ROWS_SUMMED = 512, 32
# A small model is never certain; this is also the highest figure that four decimals tell from 1.
SUREST = 0.999
# What all words of a fragment weigh together beside one cue.
_WORDS_WEIGH = 4.5


@dataclass(frozen=True)
class Features:
    """The cues and words that a model knows, each with its column; words come after the cues."""

    cues: dict[str, int]
    words: dict[str, int]

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.cues) + len(self.words)

    @cached_property
    def _by_place(self) -> tuple[dict[str, dict[str, int]], dict[str, dict[Word, int]]]:
        # Making names of what stands at a place, to look them up, took longer than finding it.
        return cue_columns(self.cues), word_columns(self.words)

    def _known(self, placed: Iterable[PlacedWords]) -> set[int]:
        _, words_at = self._by_place
        found: set[int | None] = set()
        for place, words in placed:
            if place in words_at:
                found.update(map(words_at[place].get, words))
        return {column for column in found if column is not None}

    @cached_property
    def _of_headings(self) -> Callable[[tuple[str, ...], str], set[int]]:
        return lru_cache(maxsize=1024)(lambda path, block: self._known(words_of_headings(path, block)))

    def of(self, fragment: FragmentInContext) -> tuple[npt.NDArray[np.int64], Floats, int]:
        """Return the columns found, their values, and how many of them are cues: those come first."""
        cues_at, _ = self._by_place
        named = chain.from_iterable(map(cues_at[place].get, cues) for place, cues in cues_by_place(fragment))
        cues = [column for column in dict.fromkeys(named) if column is not None]
        below = self._of_headings(fragment.heading_path, fragment.block)
        # The order of the columns is that in which weights are added, which decides the last bits.
        words = sorted(below.union(self._known(words_around(fragment))))
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
    """Types fragments as in SkillPager, section 3.1, with the weights that come with the package or a model.

    The probabilities of a linear model over cues and words and of boosted trees over cues are averaged and
    brought to a temperature that makes the confidence the share of right answers (at least 1/6, at most
    0.999). Deterministic, and independent of the order and number of fragments.
    """

    name = LOCAL

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
