"""The scorer of units: the features of each for a request, and how likely that makes it needed.

Its card is `data/paging_scorer.md`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.models.protocols import Vectors
from tasks.retrieve.paging.late_interaction import STATES, TokenStates, state_rows
from tasks.retrieve.paging.prepared import SHAPE, Prepared
from tasks.retrieve.paging.request import Request
from tasks.retrieve.paging.similarity import (
    FACETS,
    PLACES,
    SECTIONS,
    Matched,
    facet_rows,
    feedback,
    hybrid_scores,
    matched_terms,
    place_rows,
    ranks,
    scaled,
    section_rows,
    similar,
    standard,
    standard_sections,
)
from tasks.retrieve.paging.terms import Floats, Integers

_STANDARD = (
    "words", "node_words", "title_words", "words_before", "words_after", "section_words",
    "cosine", "cosine_before", "cosine_after", "section_cosine", "section_best", "section_vector",
)  # fmt: skip
_SCALED = ("words", "node_words", "title_words", "cosine", "section_vector")
_PLAIN = ("cosine", "words", "node_words")
NAMES: tuple[str, ...] = (
    *_STANDARD,
    *(f"{name}_scaled" for name in _SCALED),
    *(f"{name}_rank" for name in _SCALED),
    *(f"{name}_plain" for name in _PLAIN),
    *FACETS,
    *SHAPE,
    *STATES,
    "feedback_plain",
    "feedback",
    *SECTIONS,
    *PLACES,
    "spread",
    "log_facets",
)


def features(
    document: Prepared, vectors: Vectors, states: TokenStates, request: Request, asked: Vectors
) -> Floats:
    """Return the features of every unit, shape `(len(NAMES), units)`.

    `vectors` are unit vectors of the nodes, and `states` the token embeddings of the units. `asked` has unit
    vectors of the whole query, its facets and its words, shape `(1 + facets + words, d)`.
    """
    whole, facets, words = np.split(asked, [1, 1 + len(request.facets)])
    by_node = similar(asked[: 1 + len(facets)], vectors)
    by_section = similar(asked[: 1 + len(facets)], document.section_vectors)
    section = document.section
    around = standard_sections(by_section[1:], np.diff(document.sections, append=len(section)))
    cosines = by_node[:, document.units.owner]
    matched = matched_terms(document, request)
    values = _values(document, matched, cosines[0], by_section[0, section])
    every, most, plain = (
        np.stack([values[name] for name in names]) for names in (_STANDARD, _SCALED, _PLAIN)
    )
    hybrid = hybrid_scores(matched, request, cosines[1:], around[:, section])
    alike = feedback(hybrid, document, vectors)[None]
    sections, spread = section_rows(hybrid, document)
    of_request = np.array([[spread], [np.log(len(facets))]], dtype=np.float32)
    # Written into one array: the parts are of mixed types, and 32 bits are what the scorer was fitted with.
    found: Floats = np.empty((len(NAMES), hybrid.shape[1]), dtype=np.float32)
    parts = [
        standard(every),
        scaled(most),
        ranks(most) / np.float32(most.shape[1]),
        plain,
        facet_rows(hybrid, matched, request, cosines[1:]),
        document.shape,
        state_rows(states, words if len(words) else whole, document),
        alike,
        standard(alike),
        sections,
        place_rows(hybrid, document),
        np.broadcast_to(of_request, (2, hybrid.shape[1])),
    ]
    np.concatenate(parts, out=found)
    return found


def _values(document: Prepared, matched: Matched, cosine: Floats, vector: Floats) -> dict[str, Floats]:
    units, section, sections = document.units, document.section, document.sections
    total = max(float(matched.weights.sum()), 1e-9)
    words, node_words, title_words = (part.sum(axis=0) / total for part in matched.parts())
    return {
        "words": words,
        "node_words": node_words,
        "title_words": title_words,
        "words_before": _shifted(words, 1),
        "words_after": _shifted(words, -1),
        "section_words": np.maximum.reduceat(node_words, sections)[section],
        "cosine": cosine,
        "cosine_before": _of_neighbour(cosine, units.first, 1),
        "cosine_after": _of_neighbour(cosine, units.first, -1),
        "section_cosine": _means(cosine, sections)[section],
        "section_best": np.maximum.reduceat(cosine, sections)[section],
        "section_vector": vector,
    }


def _shifted(values: Floats, by: int) -> Floats:
    """Return the predecessor (1) or successor (-1) of each value, 0 beyond the ends."""
    moved = np.roll(values, by)
    moved[0 if by > 0 else -1] = 0
    return moved


def _of_neighbour(values: Floats, first: Integers, by: int) -> Floats:
    """Return for each unit the value of the node before its own (1) or after it (-1), 0 beyond the ends."""
    return np.repeat(_shifted(values[first[:-1]], by), np.diff(first))


def _means(values: Floats, starts: Integers) -> Floats:
    sizes = np.diff(starts, append=len(values)).astype(np.float32)
    return np.add.reduceat(values, starts) / sizes


FILE = Path(__file__).parents[1] / "data" / "paging_scorer.json"
SCORER_VERSION = 3
# What a score is made of, by the beginning of the features' names; the rest is what the unit itself is like.
_GROUPS = (
    ("facets", ("facet", "champion", "log_facets", "spread")),
    ("headings", ("title_words", "section")),
    ("words", ("words", "node_words")),
    ("meaning", ("cosine", "state", "feedback")),
)
_FACETS = NAMES.index("log_facets")
_SUREST = 15.0  # beyond it, single precision no longer tells a chance from 1
GROUPS = (*(group for group, _ in _GROUPS), "shape")


@dataclass(frozen=True, slots=True)
class Scorer:
    """A logistic regression over `NAMES`, whose weights depend on the number of a request's facets.

    Features are standardised by `mean` and `deviation`. `weight` is for a request with the mean number of
    facets; `lean` is its change for one standard deviation of the logarithm of the facets. All four arrays
    have the shape `(len(NAMES),)`.
    """

    mean: Floats
    deviation: Floats
    weight: Floats
    lean: Floats
    bias: float

    def logits(self, features: Floats) -> Floats:
        """Return each unit's score, shape `(units,)`, from its features, shape `(len(NAMES), units)`."""
        slope = self._slope(features)
        scores: Floats = slope @ features
        return scores + np.float32(self.bias - float(slope @ self.mean))

    def by_group(self, features: Floats) -> Floats:
        """Return each group's part of the score, compared with an average unit: `(units, groups)`."""
        slopes = self._slope(features) * _members()
        return np.ascontiguousarray((slopes @ features - (slopes @ self.mean)[:, None]).T)

    def _slope(self, features: Floats) -> Floats:
        facets = leaning(features, self.mean, self.deviation)
        found: Floats = (self.weight + np.float32(facets) * self.lean) / self.deviation
        return found


def leaning(features: Floats, mean: Floats, deviation: Floats) -> float:
    """Return the standardised logarithm of a request's number of facets."""
    return float((features[_FACETS, 0] - mean[_FACETS]) / deviation[_FACETS])


def chances(logits: Floats) -> Floats:
    """Return logits as chances in (0, 1)."""
    found: Floats = 1 / (1 + np.exp(-np.clip(logits, -_SUREST, _SUREST)))
    return found


@functools.lru_cache(maxsize=1)
def packaged_scorer() -> Scorer:
    """Return the scorer that the package carries."""
    return scorer_of(json.loads(FILE.read_text("utf-8")))


def scorer_of(stored: Mapping[str, Any]) -> Scorer:
    """Return a scorer from its stored form, `{version, bias, features: {name: numbers}}`.

    The numbers are mean, deviation, weight and lean. Raises `ValueError` if the version or the features are
    others than these.
    """
    if stored["version"] != SCORER_VERSION or tuple(stored["features"]) != NAMES:
        msg = f"the paging scorer is of version {stored['version']} or of other features: fit it anew"
        raise ValueError(msg)
    mean, deviation, weight, lean = np.array(list(stored["features"].values()), dtype=np.float32).T.copy()
    return Scorer(mean, deviation, weight, lean, float(stored["bias"]))


@functools.lru_cache(maxsize=1)
def _members() -> Floats:
    """Return which feature belongs to which group, as ones and zeros of shape `(groups, len(NAMES))`."""
    group_of = [_group(name) for name in NAMES]
    return np.array([[found == group for found in group_of] for group in GROUPS], dtype=np.float32)


def _group(name: str) -> str:
    if name in SHAPE:
        return "shape"
    return next((group for group, starts in _GROUPS if name.startswith(starts)), "shape")
