"""The similarity of each unit to a request: words and vectors, facet by facet, word by word."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tasks.models.protocols import Vectors
from tasks.retrieve.paging.prepared import Prepared
from tasks.retrieve.paging.request import Request
from tasks.retrieve.paging.terms import Floats, Integers, bm25, rarity, term_counts

FACETS = (
    "facet_best", "facet_rank", "facet_share", "facet_mean_share", "facet_words", "facet_cosine",
    "facet_mean", "champion",
)  # fmt: skip
SECTIONS = ("section_facet_rank", "section_facet_share", "section_facet_mean_share")
PLACES = ("place_log_rank", "place_rank", "place_log_index", "place_first")
_FEEDBACK_UNITS = 6
# Deviations and maxima below this are rounding: all values are the same.
_LEAST = np.float32(1e-6)
_ONE = np.float32(1)


class Matched(NamedTuple):
    """BM25 contributions by term of units, nodes and headings above, shape `(terms, units)`; and weights."""

    words: Floats
    node_words: Floats
    titles: Floats
    weights: Floats

    def parts(self) -> tuple[Floats, Floats, Floats]:
        """Return the contributions of units, nodes and titles."""
        return self[:3]


def matched_terms(document: Prepared, request: Request) -> Matched:
    """Return the matches of a request's terms in a document."""
    units = document.units
    counts = term_counts(document.words, request.terms)
    in_nodes = np.add.reduceat(counts, units.first[:-1], axis=1)
    in_titles = term_counts(document.title_words, request.terms) > 0
    nothing = np.zeros((len(request.terms), 1), dtype=np.bool_)
    above = np.concatenate([in_titles, nothing], axis=1)[:, document.above].any(axis=1)
    weights = rarity(in_nodes)
    sizes = np.add.reduceat(units.tokens, units.first[:-1]) + units.frame
    return Matched(
        bm25(counts, units.tokens, weights, length_share=0.5),
        bm25(in_nodes, sizes, weights, length_share=0.75)[:, units.owner],
        (above * weights[:, None])[:, document.section],
        weights,
    )


def hybrid_scores(matched: Matched, request: Request, cosines: Vectors, around: Floats) -> Floats:
    """Return how well each unit serves each facet taken alone, shape `(facets, units)`.

    `cosines`, of the same shape, are those of the facets to the units' nodes; `around` are the standardised
    cosines of the facets to the units' sections.
    """
    words, node_words, titles = map(standard, _by_facet(matched, request))
    scores: Floats = standard(cosines) + 0.7 * around + 0.6 * (words + node_words) + 0.4 * titles
    return scores


def _by_facet(matched: Matched, request: Request) -> list[Floats]:
    asks: Floats = request.asks.astype(np.float32)
    asks /= np.maximum(asks @ matched.weights, np.float32(1e-9))[:, None]
    return [asks @ part for part in matched.parts()]


def facet_rows(hybrid: Floats, matched: Matched, request: Request, cosines: Vectors) -> Floats:
    """Return `FACETS`, above all the values for the facet that a unit serves best."""
    words, node_words, _ = _by_facet(matched, request)
    share = np.exp(hybrid / 2)
    share /= share.sum(axis=1, keepdims=True)
    both = matched.node_words + 0.5 * matched.titles
    relative = both / np.maximum(both.max(axis=1, keepdims=True), 1e-9)
    rows = [
        hybrid.max(axis=0),
        -np.log1p(ranks(hybrid).min(axis=0)),
        np.log(share.max(axis=0)),
        np.log(share.mean(axis=0)),
        (words + node_words).max(axis=0),
        cosines.max(axis=0),
        hybrid.mean(axis=0),
        matched.weights @ (relative * relative * relative) / max(float(matched.weights.sum()), 1e-9),
    ]
    return np.stack(rows)


def similar(asked: Vectors, vectors: Vectors) -> Vectors:
    """Return the cosines of unit vectors, shape `(asked, vectors)`."""
    # The product of few with many is fastest this way round.
    return np.ascontiguousarray((vectors @ asked.T).T)


def section_rows(hybrid: Floats, document: Prepared) -> tuple[Floats, float]:
    """Return `SECTIONS`, the values for the facet that a unit's section serves best, and the spread.

    The spread is the entropy of the request over the document's sections, in nats.
    """
    starts, n = document.sections, hybrid.shape[1]
    means = np.add.reduceat(hybrid, starts, axis=1) / np.diff(starts, append=n)
    scores = (np.maximum.reduceat(hybrid, starts, axis=1) + means) / 2
    share = np.exp(scores / 1.5)
    share /= share.sum(axis=1, keepdims=True)
    mean = share.mean(axis=0)
    rows = [-np.log1p(ranks(scores).min(axis=0)), np.log(share.max(axis=0)), np.log(mean)]
    return np.stack(rows)[:, document.section], float(-(mean * np.log(mean)).sum())


def place_rows(hybrid: Floats, document: Prepared) -> Floats:
    """Return `PLACES`: the rank of a unit among those of its section."""
    section, starts, n = document.section, document.sections, hybrid.shape[1]
    place = np.empty(n, dtype=np.float32)
    place[np.lexsort((-hybrid.max(axis=0), section))] = np.arange(n) - starts[section]
    index = (np.arange(n) - starts[section]).astype(np.float32)
    sizes = np.diff(starts, append=n)[section].astype(np.float32)
    return np.stack([np.log1p(place), place / sizes, np.log1p(index), (index == 0).astype(np.float32)])


def feedback(hybrid: Floats, document: Prepared, vectors: Vectors) -> Floats:
    """Return each unit's cosine to the mean of the best units (relevance feedback, Rocchio)."""
    best = np.argsort(-hybrid.max(axis=0), kind="stable")[:_FEEDBACK_UNITS]
    middle = vectors[document.units.owner[best]].mean(axis=0)
    cosines = vectors @ (middle / max(float(np.linalg.norm(middle)), 1e-9))
    found: Floats = cosines[document.units.owner]
    return found


def standard(values: Floats) -> Floats:
    """Return values standardised by row; 0 if all are equal."""
    centred: Floats = values - values.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.einsum("ru,ru->r", centred, centred)[:, None] / np.float32(centred.shape[1]))
    centred /= np.where(deviation > _LEAST, deviation, _ONE)
    return centred


def standard_sections(values: Floats, sizes: Integers) -> Floats:
    """Return `standard` of values by section, where each section counts for `sizes` units."""
    share = (sizes / sizes.sum()).astype(np.float32)
    centred: Floats = values - (values @ share)[:, None]
    deviation = np.sqrt((centred * centred) @ share)[:, None]
    centred /= np.where(deviation > _LEAST, deviation, _ONE)
    return centred


def scaled(values: Floats) -> Floats:
    """Return values divided by their row's largest; 0 if none is above 0."""
    most = values.max(axis=1, keepdims=True, initial=0.0)
    found: Floats = np.where(most > _LEAST, values, np.float32(0)) / np.where(most > _LEAST, most, _ONE)
    return found


def ranks(values: Floats) -> Floats:
    """Return the rank of each value in its row, from 0 for the highest; equal values in order."""
    order = np.argsort(-values, axis=1, kind="stable")
    ranks = np.empty(values.shape, dtype=np.float32)
    np.put_along_axis(ranks, order, np.arange(values.shape[1], dtype=np.float32)[None, :], axis=1)
    return ranks
