"""The default router: BM25F, a bi-encoder over names and descriptions, and what reads the first skills.

`search` answers with `Router.rank(query, k)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.folder import threads_of_process
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.routing.bm25f import Lexical, Scores, lexical_of
from tasks.retrieve.routing.coarse import (
    RESCORED,
    Coarse,
    best_of,
    best_rows,
    leading,
    rows_standardised,
    standardised,
)
from tasks.retrieve.routing.facets import about_tokens, facets, readable
from tasks.retrieve.routing.fit import FEATURES, TOP, Evidence, FitModel, Leading, evidence_of
from tasks.retrieve.routing.learned_leg import Learned, LearnedLeg
from tasks.retrieve.routing.micro_batches import MicroBatches, cosines
from tasks.retrieve.routing.postings import Sketches, postings_of
from tasks.retrieve.routing.reranker import SkillReader
from tasks.retrieve.routing.skill import Skill

# Of bins of the sketches; the share estimates the Jaccard similarity of the texts' terms within 0.05.
_SAME_TERMS = 0.85
# Skills made from one template share most terms and differ in what they are for, which descriptions say.
_SAME_NEED = 0.95


class NearIdentical:
    """Finds near-identical rows by sketches of their terms, `(rows, bins)`, and vectors, `(rows, d)`."""

    def __init__(self, sketches: Sketches, vectors: Vectors) -> None:
        self._sketches, self._vectors = sketches, vectors

    def folded(self, rows: Sequence[int]) -> list[list[int]]:
        """Return rows in groups: one that is not near-identical to any before, then those that are to it."""
        groups: dict[int, list[int]] = {}
        held = self._vectors[np.array(rows, dtype=np.int64)]
        blocks = (held[at : at + _BLOCK] @ held.T >= _SAME_NEED for at in range(0, len(rows), _BLOCK))
        for place, (row, near) in enumerate(zip(rows, chain.from_iterable(blocks), strict=True)):
            before = [rows[other] for other in np.flatnonzero(near[:place]).tolist()]
            groups.setdefault(self._leader(row, [one for one in before if one in groups]), []).append(row)
        return list(groups.values())

    def _leader(self, row: int, leaders: list[int]) -> int:
        """Return the first of leaders, all near to a row, that has the same terms, or the row itself."""
        if not leaders:
            return row
        own, others = self._sketches[row], self._sketches[leaders]
        filled = (own != _EMPTY) | (others != _EMPTY)
        alike = ((own == others) & filled).sum(axis=1) >= _SAME_TERMS * np.maximum(filled.sum(axis=1), 1)
        return leaders[int(alike.argmax())] if alike.any() else row


_DECISIVE = ("lexical", "whole", "facets")  # parts that decide which skill the legs have first
_EMPTY = np.iinfo(np.uint32).max  # a bin of a sketch that no term fell into
_WHOLE = 96  # tokens of a text that is encoded as one; the mean of its facets says more of a longer one
_BLOCK = 512  # rows that are laid beside all others at once: whoever asks for all skills asks for many
_LEAD = 0.001  # standard deviations; between the first skill and the one that would be first
Faceted: TypeAlias = tuple[str, list[str]]  # a query and its facets
Asked: TypeAlias = tuple[Vectors, Scores, Learned]


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """The weights of a score's parts, in standard deviations of the lexical score; each at least 0.

    `share` below is the number of the task's facets over `many`, at most 1.
    """

    lexical: float = 1.0  # weight of BM25F over all fields
    whole: float = 0.3  # weight of the cosine between the whole task and name and description
    # Weight of the best cosine of any facet, times `share`, since one sentence is one need.
    facets: float = 0.7
    # Weight of BM25 over name and description alone, times the square of `share`; 0 for a task of one facet.
    # It finds further needs, and has no influence on which skill is first.
    described: float = 0.5
    # Weight of the lexical score a second time, times `share`; 0 for a task of one facet. A long task names
    # its further needs in words. It has no influence on which skill is first either.
    again: float = 0.25
    # Weight of the cosine that was learned from requests, times the share of the request that it reads.
    learned: float = 1.5
    # Weight of the cosine to what a language model foretold of a skill, times the same share.
    foretold: float = 1.0
    many: int = 12  # the number of facets from which a task counts as long, at least 1
    tokens: int = 288  # the approximate number of tokens of a task that the encoder reads


@dataclass(frozen=True, slots=True)
class Ranked:
    """A skill found: its score, the parts whose sum it is, and near-identical skills that rank below.

    A score that a method does not tell is not a number.
    `fit` is the probability that it serves the request, None if no model tells; `evidence` is what it is
    told by (`tasks.retrieve.routing.fit`), `reading` of one that was read among it, as log odds.
    """

    doc_id: str
    score: float
    parts: Mapping[str, float]
    folded: tuple[str, ...] = ()
    fit: float | None = None
    evidence: Mapping[str, float] = field(default_factory=dict)


class ReadQuery(NamedTuple):
    """What was made of a query: the parts of scores, and what they were before they were standardised.

    `lexical` has shape `(rows,)`; `asked` has the unit vectors of facets, that of the whole query last. Where
    the parts are of coarse cosines, `whole` returns those of some rows that are of whole ones.
    """

    parts: dict[str, Scores]
    lexical: Scores
    asked: Vectors
    whole: Callable[[npt.NDArray[np.int64]], dict[str, Scores]] | None = None


class Router:
    """Ranks the skills of one index, given by row.

    `vectors`, shape `(rows, dimension)`, are unit vectors of name and description, made by `encoder`. With
    `coarse`, which `learned` has then too, the rows that lead by it are ranked by whole vectors, others not.
    """

    def __init__(
        self, doc_ids: Sequence[str], names: Sequence[str], lexical: Lexical, sketches: Sketches,
        vectors: Vectors, encoder: Encoder, settings: RouterSettings | None = None,
        fit: FitModel | None = None, reader: SkillReader | None = None, learned: LearnedLeg | None = None,
        coarse: Coarse | None = None,
    ) -> None:  # fmt: skip
        self._coarse, self._cosines = coarse, coarse.cosines if coarse else partial(cosines, vectors)
        self._doc_ids, self._lexical, self._vectors, self._encoder = doc_ids, lexical, vectors, encoder
        self._settings, self._folder = settings or RouterSettings(), NearIdentical(sketches, vectors)
        self._fit, self._reader, self._learned = fit, reader, learned
        lanes = max(1, threads_of_process() // 2)  # two encoders work for each
        self._batches, self._pool = MicroBatches[Faceted, Asked](lanes), ThreadPoolExecutor(lanes)
        self._named: dict[str, list[int]] = {}
        for row, keys in enumerate(zip(names, doc_ids, strict=True)):
            for key in {plain_name(key) for key in keys} - {""}:
                self._named.setdefault(key, []).append(row)

    @classmethod
    def from_documents(
        cls, documents: Sequence[Skill], encoder: Encoder, *, vectors: Vectors | None = None,
        settings: RouterSettings | None = None,
        fit: FitModel | None = None, reader: SkillReader | None = None, learned: LearnedLeg | None = None,
    ) -> Router:  # fmt: skip
        """Return a router over documents in memory; `vectors` are those of name and description, if given."""
        if vectors is None:
            vectors = encoder.encode([document.head for document in documents])
        postings = postings_of(documents)
        ids, names = [d.doc_id for d in documents], [d.name for d in documents]
        lexical, sketches = lexical_of(postings), postings.sketches
        return cls(ids, names, lexical, sketches, vectors, encoder, settings, fit, reader, learned)

    def rank(
        self, query: str, k: int, *, allowed: npt.NDArray[np.bool_] | None = None, fold: bool = True
    ) -> list[Ranked]:
        """Return the `k` best skills for a query, best first; skills of equal score by ascending id.

        A skill whose name or id equals the query comes before all others. `allowed`, shape `(rows,)`, marks
        the rows that may be found. With `fold` only the best of near-identical skills takes a rank. The first
        ones are read beside the query, if there is a reader, and stay before all others.
        """
        rows = np.arange(len(self._doc_ids)) if allowed is None else np.flatnonzero(allowed)
        if not len(rows):
            return []
        for model in (self._learned, self._reader):
            if model is not None:
                model.begin()
        read, allowed_rows = self.read(query), len(rows)
        parts = dict(read.parts)
        total: Scores = reduce(np.add, parts.values())
        deep, read_first = 3 if fold else 1, self._reader.reach.skills if self._reader else 0
        wanted = deep * max(k, TOP, read_first) + bool(read_first)
        if read.whole is not None:
            rows = leading(rows, total, max(RESCORED, 4 * wanted))
            for part, scores in read.whole(rows).items():
                parts[part][rows] = scores
            total[rows] = reduce(np.add, (scores[rows] for scores in parts.values()))
        parts["lead"] = self._lead(rows, total, parts["described"] + parts["again"])
        total += parts["lead"]
        best = best_rows(rows, total, wanted, self._doc_ids)
        near = best[: deep * read_first + 1]
        groups = self._folder.folded(best) if fold else [[row] for row in best]
        leaders = np.array([row for row, *_ in groups], dtype=np.int64)
        # However many are asked for, each is compared with the same ones: its fit does not depend on `k`.
        compared = len({*leaders.tolist()}.intersection(best[: deep * TOP]))
        evidence = self._evidence(query, read, leaders, (allowed_rows, compared))
        # Nor does what is read, and what it is lifted above.
        first = [row for row in leaders.tolist() if row in {*near}]
        odds = self._reader.scores(query, first[:read_first]) if self._reader else np.zeros(0, np.float32)
        parts["reranker"] = self._reranked(odds, first, total, near[-1])
        total += parts["reranker"]
        fits = self._fits(evidence, odds.astype(np.float64), read.parts["named"][leaders])
        told = [[*of, *odds[n : n + 1].tolist()] for n, of in enumerate(evidence.tolist())]
        found = list(zip(groups, fits, told, strict=True))
        found.sort(key=lambda one: (-total[one[0][0]], self._doc_ids[one[0][0]]))
        return [
            Ranked(
                self._doc_ids[row],
                float(total[row]),
                {part: float(scores[row]) for part, scores in parts.items()},
                tuple(self._doc_ids[other] for other in others),
                fit,
                dict(zip((*FEATURES, "reading"), told, strict=False)),
            )
            for (row, *others), fit, told in found[:k]
        ]

    @property
    def rows(self) -> int:
        """The number of skills."""
        return len(self._doc_ids)

    @property
    def vectors(self) -> Vectors:
        """The unit vectors of name and description, shape `(rows, dimension)`."""
        return self._vectors

    def words(self, text: str) -> Scores:
        """Return the standardised lexical score of every row for a text, shape `(rows,)`."""
        return standardised(self._lexical.scores(text))

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, as those of names and descriptions are made."""
        return self._encoder.encode(texts)

    def nearness(self, queries: Vectors) -> Scores:
        """Return the standardised cosine of every row to each query vector, shape `(queries, rows)`."""
        return rows_standardised(cosines(self._vectors, queries))

    def rarities(self, terms: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return how rare terms are among the rows (inverse document frequency), shape `(terms,)`."""
        return self._lexical.rarities(terms)

    def folded(self, rows: Sequence[int]) -> list[list[int]]:
        """Return rows, best first, in groups of near-identical ones; the first of a group takes the rank."""
        return self._folder.folded(rows)

    def parts(self, query: str) -> dict[str, Scores]:
        """Return the parts of every row's score, each of shape `(rows,)`; the score is their sum.

        `rank` adds a lead to the best row without `described` and `again`.
        """
        return self.read(query).parts

    def _evidence(
        self, query: str, read: ReadQuery, rows: npt.NDArray[np.int64], of: tuple[int, int]
    ) -> Evidence:
        """Return the evidence of leading rows; `of` are `rows` and `compared` of `evidence_of`."""
        parts, asked = read.parts, read.asked / np.linalg.norm(read.asked, axis=1, keepdims=True)
        found = (
            np.stack([parts[part][rows] for part in _DECISIVE]).sum(axis=0),
            read.lexical[rows] / max(self._lexical.highest(query), 1e-9),
            parts["whole"][rows],
            (self._vectors[rows] @ asked.T).max(axis=1),
        )
        leading = Leading(*(np.asarray(values, dtype=np.float64) for values in found))
        return evidence_of(leading, *of)

    def _reranked(self, odds: Scores, rows: Sequence[int], total: Scores, last: int) -> Scores:
        """Return what reading the first of rows adds to their scores; no row that is not read comes before.

        Of `rows`, best first, the first have `odds` by reading; all others are no better than `last`.
        """
        added = np.zeros(len(total), dtype=np.float32)
        if self._reader is None or not len(odds):
            return added
        first, others = rows[: len(odds)], rows[len(odds) :]
        added[first] = self._reader.reach.part(odds)
        least, above = float((total[first] + added[first]).min()), float(total[[*others, last][0]])
        if len(total) > len(first):
            added[first] += max(0.0, above - least + _LEAD)
        return added

    def _fits(self, evidence: Evidence, read: Evidence, named: Scores) -> list[float | None]:
        if self._fit is None:
            return [None] * len(evidence)
        return list(np.where(named > 0, 1.0, self._fit.chances(evidence, read)).tolist())

    def read(self, query: str) -> ReadQuery:
        """Return what is made of a query."""
        settings, cut = self._settings, facets(query)
        chosen = readable(cut or [query[: 4 * settings.tokens]], settings.tokens)
        asked, near, learned = self._batches(self._together, (query, chosen))
        # Each by itself first, because a vague facet is near to everything.
        near = rows_standardised(near)
        nearest = best_of(near)
        share = min(1.0, len(cut) / settings.many)
        several = share if len(cut) > 1 else 0.0
        raw = self._lexical.scores(query)
        lexical = settings.lexical * standardised(raw)
        described = again = bonus = np.zeros(len(self._doc_ids), dtype=np.float32)
        if weight := settings.described * several**2:
            described = np.float32(weight) * standardised(self._lexical.described.scores(query))
        if several:
            again = np.float32(settings.again * several) * lexical
        if named := self._named.get(plain_name(query)):
            bonus = bonus.copy()
            bonus[named] = 1000.0  # no other part comes near it
        weights = {"whole": settings.whole, "facets": settings.facets * share}
        weights["learned"] = settings.learned * learned.share
        parts = {
            "lexical": lexical,
            "whole": weights["whole"] * near[-1],
            "facets": weights["facets"] * standardised(nearest),
            "described": described,
            "again": again,
            "learned": weights["learned"] * standardised(learned.cosines),
            "named": bonus,
        }
        if learned.foretold is not None:
            parts["foretold"] = np.float32(settings.foretold * learned.share) * _told_standardised(
                learned.foretold
            )
        if (coarse := self._coarse) is None:
            return ReadQuery(parts, raw, asked)
        leg = self._learned.coarse if self._learned else None

        def whole(rows: npt.NDArray[np.int64]) -> dict[str, Scores]:
            told = dict(zip(("whole", "facets"), coarse.rescored(asked, rows, nearest), strict=True))
            if leg is not None:
                told["learned"] = leg.standardised(learned.request[None], rows)[0]
            return {part: weights[part] * scores for part, scores in told.items()}

        return ReadQuery(parts, raw, asked, whole)

    def _together(self, queries: list[Faceted]) -> list[Asked]:
        """Return of each query, given with its facets, what the encoders make of it.

        These are the vectors of its facets and the cosine of each to every row, the last of the whole if
        there are several facets, and what the learned leg tells.
        """
        learned = self._pool.submit(self._by_learned, [query for query, _ in queries])  # meanwhile
        fits = [query not in chosen and about_tokens(query) <= _WHOLE for query, chosen in queries]
        texts = [[*of, *[query] * fit] for (query, of), fit in zip(queries, fits, strict=True)]
        encoded = _parted(self._encoder.encode([*chain.from_iterable(texts)]), texts)
        asked = [
            own if fit or len(own) == 1 else np.vstack([own, _mean(own, of)])
            for own, fit, of in zip(encoded, fits, texts, strict=True)
        ]
        near = _parted(self._cosines(np.concatenate(asked)), asked)
        return list(zip(asked, near, learned.result(), strict=True))

    def _by_learned(self, queries: list[str]) -> list[Learned]:
        if self._learned is None:
            nothing = np.zeros(self.rows, dtype=np.float32)
            return [Learned(nothing, 0.0, None, nothing[:0])] * len(queries)
        return self._learned.cosines(queries)

    def _lead(self, rows: npt.NDArray[np.int64], total: Scores, further: Scores) -> Scores:
        """Return what lifts the row that is best without `further` above all others, or zeros."""
        lead = np.zeros(len(total), dtype=np.float32)
        if not further.any():
            return lead
        for first in best_rows(rows, total - further, 1, self._doc_ids):
            above = float(total[rows].max() - total[first])
            # What ties with it may have a lower id.
            if above > 0 or best_rows(rows, total, 1, self._doc_ids) != [first]:
                lead[first] = above + _LEAD
        return lead


def plain_name(name: str) -> str:
    """Return a name in the form in which names are compared: lower case, words joined by single hyphens."""
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _told_standardised(scores: Scores) -> Scores:
    """Return scores standardised over the rows whose score is not 0; of the others nothing is told."""
    found, told = np.zeros_like(scores), scores != 0
    found[told] = standardised(scores[told])
    return found


def _mean(vectors: Vectors, texts: Sequence[str]) -> Vectors:
    """Return the mean of texts' vectors by length, as the encoder itself pools the tokens of a text."""
    return np.average(vectors, axis=0, weights=[*map(about_tokens, texts)]).astype(np.float32)


def _parted(rows: Vectors, sizes: Sequence[Sized]) -> list[Vectors]:
    return np.split(rows, np.cumsum([len(size) for size in sizes[:-1]], dtype=np.int64))
