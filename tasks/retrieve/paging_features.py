"""What speaks for a unit, given a request: a matrix of named features, computed for all units at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tasks.models.protocols import Vectors
from tasks.retrieve.paging_outline import SHAPE, Floats, Integers, Prepared
from tasks.retrieve.paging_request import Request
from tasks.retrieve.paging_terms import bm25, rarity, term_counts

_STANDARD = (
    "words", "node_words", "title_words", "words_before", "words_after", "section_words",
    "cosine", "cosine_before", "cosine_after", "section_cosine", "section_best", "section_vector",
)  # fmt: skip
_SCALED = ("words", "node_words", "title_words", "cosine", "section_vector")
_FACETS = (
    "facet_best", "facet_rank", "facet_share", "facet_mean_share", "facet_words", "facet_cosine",
    "facet_mean", "champion",
)  # fmt: skip
_PLAIN = ("cosine", "words", "node_words")

NAMES: tuple[str, ...] = (
    *_STANDARD,
    *(f"{name}_scaled" for name in _SCALED),
    *(f"{name}_rank" for name in _SCALED),
    *(f"{name}_plain" for name in _PLAIN),
    *_FACETS,
    *SHAPE,
    "log_facets",
    "log_facets_x_best",
    "log_facets_x_mean_share",
)
NEAR_NAMES = ("score", "before", "after", "section_mean", "section_best", "node_mean", "standard", "rank")


def features(document: Prepared, vectors: Vectors, request: Request, asked: Vectors, body: str) -> Floats:
    """Return the features of every unit, shape `(units, len(NAMES))`.

    Args:
        document: The document made ready.
        vectors: Unit vectors of its nodes.
        request: The query taken apart.
        asked: Unit vectors of the whole query and then of its facets, shape `(1 + facets, d)`.
        body: The document's text.
    """
    units, owner, section = document.units, document.units.owner, document.section
    matched = _matched(document, request, body)
    total = max(float(matched.weights.sum()), 1e-9)
    cosines = vectors @ asked.T
    by_section = document.section_vectors @ asked.T
    words, node_words, title_words = (part.sum(axis=1) / total for part in matched.parts())
    cosine = cosines[:, 0].astype(np.float64)
    values = {
        "words": words,
        "node_words": node_words,
        "title_words": title_words,
        "words_before": _shifted(words, 1),
        "words_after": _shifted(words, -1),
        "section_words": _best(node_words[units.first[:-1]], section)[section][owner],
        "cosine": cosine[owner],
        "cosine_before": _shifted(cosine, 1)[owner],
        "cosine_after": _shifted(cosine, -1)[owner],
        "section_cosine": _mean(cosine, section)[section][owner],
        "section_best": _best(cosine, section)[section][owner],
        "section_vector": by_section[section, 0][owner],
    }
    facets = _facets(matched, request, cosines[owner, 1:], by_section[section][owner, 1:])
    breadth = np.full(len(owner), np.log(len(request.facets)))
    columns = [
        *(standard(values[name]) for name in _STANDARD),
        *(_scaled(values[name]) for name in _SCALED),
        *(_ranks(values[name]) for name in _SCALED),
        *(values[name] for name in _PLAIN),
        *facets,
        *document.shape.T,
        breadth,
        breadth * facets[_FACETS.index("facet_best")],
        breadth * facets[_FACETS.index("facet_mean_share")],
    ]
    return np.stack(columns, axis=1)


def near_features(document: Prepared, score: Floats) -> Floats:
    """Return what a unit's surroundings say of it, given first scores: shape `(units, len(NEAR_NAMES))`."""
    owner = document.units.owner
    section = document.section[owner]
    return np.stack(
        [
            score,
            _shifted(score, 1, edge=True),
            _shifted(score, -1, edge=True),
            _mean(score, section)[section],
            _best(score, section)[section],
            _mean(score, owner)[owner],
            standard(score),
            _ranks(score),
        ],
        axis=1,
    )


class _Matched:
    """BM25 contributions by term of units, of their nodes and of the titles above them, and the weights."""

    def __init__(self, words: Floats, node_words: Floats, titles: Floats, weights: Floats) -> None:
        self.words, self.node_words, self.titles, self.weights = words, node_words, titles, weights

    def parts(self) -> tuple[Floats, Floats, Floats]:
        return self.words, self.node_words, self.titles


def _matched(document: Prepared, request: Request, body: str) -> _Matched:
    units, headings = document.units, document.headings
    counts = term_counts(body, document.lower, request.terms, units.start, units.end)
    in_nodes = np.add.reduceat(counts, units.first[:-1], axis=0)
    starts = np.array([h.start for h in headings], dtype=np.int64)
    ends = np.array([h.end for h in headings], dtype=np.int64)
    in_titles = term_counts(body, document.lower, request.terms, starts, ends) > 0
    above = (document.titles.astype(np.float64) @ in_titles) > 0
    weights = rarity(in_nodes)
    sizes = np.add.reduceat(units.tokens, units.first[:-1]) + units.frame
    return _Matched(
        bm25(counts, units.tokens.astype(np.float64), weights, length_share=0.5),
        bm25(in_nodes, sizes.astype(np.float64), weights, length_share=0.75)[units.owner],
        (above * weights)[document.section][units.owner],
        weights,
    )


def _facets(matched: _Matched, request: Request, cosines: Vectors, by_section: Vectors) -> list[Floats]:
    """Return what the facet says that a unit serves best: each is scored by itself, as if it were all."""
    asks = request.asks.T.astype(np.float64)
    totals = np.maximum(matched.weights @ asks, 1e-9)
    words, node_words, titles = (part @ asks / totals for part in matched.parts())
    hybrid = (
        standard(cosines.astype(np.float64))
        + 0.7 * standard(by_section.astype(np.float64))
        + 0.6 * (standard(words) + standard(node_words))
        + 0.4 * standard(titles)
    )
    ranks = np.argsort(np.argsort(-hybrid, axis=0, kind="stable"), axis=0, kind="stable")
    share = np.exp(hybrid / 2)
    share /= share.sum(axis=0)
    both = matched.node_words + 0.5 * matched.titles
    relative = both / np.maximum(both.max(axis=0), 1e-9)
    return [
        hybrid.max(axis=1),
        -np.log1p(ranks.min(axis=1)),
        np.log(share.max(axis=1)),
        np.log(share.mean(axis=1)),
        (words + node_words).max(axis=1),
        cosines.max(axis=1).astype(np.float64),
        hybrid.mean(axis=1),
        relative**3 @ matched.weights / max(float(matched.weights.sum()), 1e-9),
    ]


def standard(values: Floats) -> Floats:
    """Return values less their mean, over their deviation, along the first axis; 0 where all are equal."""
    deviation = values.std(axis=0)
    scaled: Floats = (values - values.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
    return scaled


def _scaled(values: Floats) -> Floats:
    most = values.max(initial=0.0)
    return values / most if most > 1e-9 else np.zeros_like(values)


def _ranks(values: Floats) -> Floats:
    ranks: Floats = np.argsort(np.argsort(-values, kind="stable"), kind="stable") / max(len(values), 1)
    return ranks


def _shifted(values: Floats, by: int, *, edge: bool = False) -> Floats:
    """Return each value's predecessor (1) or successor (-1); beyond the ends 0, or the value there."""
    moved = np.roll(values, by)
    at = 0 if by > 0 else -1
    moved[at] = values[at] if edge else 0.0
    return moved


def _mean(values: Floats, groups: Integers) -> Floats:
    means: Floats = np.bincount(groups, values) / np.bincount(groups)
    return means


def _best(values: Floats, groups: Integers) -> Floats:
    best = np.full(int(groups.max()) + 1, -np.inf)
    np.maximum.at(best, groups, values)
    return best


Scorer = Callable[[Floats], Floats]
