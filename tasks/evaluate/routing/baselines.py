"""The baselines of routing: single fields and legs, their untuned sums, and ablations of the default."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from storage.errors import WrongInput
from tasks.evaluate.paging.bench import Remembering
from tasks.evaluate.routing.bench import RoutingAnswer, RoutingMethod, whole
from tasks.models.protocols import Encoder, IndexEncoder, Vectors
from tasks.models.tokens import first_tokens
from tasks.refine.text.words import BASELINE_BREAK, IDENTIFIER
from tasks.retrieve.baselines.stages import StageRanking, reciprocal_rank_fusion
from tasks.retrieve.routing.bm25f import Bm25fSettings, lexical_of
from tasks.retrieve.routing.fit import FitModel
from tasks.retrieve.routing.learned_leg import LearnedLeg, packaged_retriever
from tasks.retrieve.routing.postings import FIELDS, Postings, postings_of
from tasks.retrieve.routing.reranker import NONE, REACHES, RERANKS, SkillReader, packaged_pair_scorer
from tasks.retrieve.routing.router import Router, RouterSettings
from tasks.retrieve.routing.skill import Skill
from tasks.retrieve.routing.skill_tokens import SkillTokens, skill_tokens_of

Scores = npt.NDArray[np.float64]


class Bm25:
    """BM25 as Lucene has it, by the package bm25s, of at least one text; words as they stand, in lower case.

    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009: `k1` says how fast
    further occurrences of a word stop counting, `b`, in [0, 1], how much long texts are marked down. Raises
    `WrongInput` if bm25s is not installed.
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        library = require_bm25()
        self._ids: dict[str, int] = {}
        numbered = [[self._ids.setdefault(w, len(self._ids)) for w in _words(text)] for text in texts]
        self._index = library.BM25(method="lucene", k1=k1, b=b, backend="numpy", csc_backend="numpy")
        self._index.index(library.tokenization.Tokenized(numbered, self._ids), show_progress=False)
        self._count = len(texts)

    def scores(self, query: str) -> Scores:
        """Return every text's score for a query, shape `(len(texts),)`; a word of the query counts once."""
        known = sorted({i for word in _words(query) if (i := self._ids.get(word)) is not None})
        if not known:
            return np.zeros(self._count)
        return np.asarray(self._index.get_scores_from_ids(known), dtype=np.float64)


def require_bm25() -> Any:  # noqa: ANN401 (an optional package, loaded where a baseline is asked for)
    """Return the library of the lexical baselines; `WrongInput` if it is not installed."""
    try:
        return importlib.import_module("bm25s")
    except ModuleNotFoundError as error:
        msg = "the lexical baselines need the package bm25s: pip install '.[evaluate]' in Skillery's folder"
        raise WrongInput(msg) from error


def _words(text: str) -> list[str]:
    return IDENTIFIER.findall(text.lower())


FULL_TOKENS = 254  # tokens of the full text that MiniLM's window of 256 holds beside its two special ones
_FULL_CHARACTERS = 1600  # no 254 tokens are longer in any but a pathological text, and none is read further
_FUSED_DEPTH = 1000
_FUSED = {
    "rrf": ("bm25-description", "bm25-full", "dense-description"),
    "rrf-two-legs": ("bm25-full", "dense-full"),
    "hybrid": ("bm25-description", "dense-description"),  # SkillFlow, table 4
}
_SENTENCE_WORDS = 3


class Baselines:
    """Ranks skills by the plain methods; an index or a set of vectors is made when first asked for.

    `skills` has at least one row of doc_id, name, description and body; encoding a task, by `query_encoder`,
    is timed with each answer.
    """

    def __init__(self, skills: pl.DataFrame, encoder: IndexEncoder, query_encoder: Encoder) -> None:
        # Sorted, so that equal scores stand in the order of their ids.
        self._skills = skills.sort("doc_id")
        self._encoder, self._query_encoder = encoder, query_encoder
        self._ids = self._skills["doc_id"].to_list()

    def rank(self, method: str, task: str, k: int) -> list[str]:
        """Return the ids of the `k` best skills by one of `BASELINES`, best first; equal scores by id."""
        return list(self.answer(method, task, k).doc_ids)

    def answer(self, method: str, task: str, k: int) -> RoutingAnswer:
        """Return what `rank` does, at least one skill, with the score of the first."""
        if legs := _FUSED.get(method):
            fused = reciprocal_rank_fusion([self.rank(leg, task, _FUSED_DEPTH) for leg in legs])
            return RoutingAnswer([doc_id for doc_id, _ in fused[:k]], fused[0][1])
        if method == "zsum":
            added = ("bm25-description", "bm25-full", "dense-description", "sentences")
            return self._best(np.sum([standardised(self._scores(leg, task)) for leg in added], axis=0), k)
        return self._best(self._scores(method, task), k)

    def prepare(self, method: str) -> None:
        """Make what a method needs before it is timed."""
        self.rank(method, "any task", 1)

    def _scores(self, leg: str, task: str) -> Scores:
        match leg:
            case "bm25-description":
                return self._lexical_head.scores(task)
            case "bm25-full":
                return self._lexical_full.scores(task)
            case "dense-description":
                return self._cosines(self._head_vectors, [task])
            case "dense-full":
                return self._cosines(self._full_vectors, [task])
            case _:
                return self._cosines(self._head_vectors, sentences(task))

    def _best(self, scores: Scores, k: int) -> RoutingAnswer:
        best = np.argsort(-scores, kind="stable")[:k].tolist()
        return RoutingAnswer([self._ids[i] for i in best], float(scores[best[0]]))

    def _cosines(self, vectors: Vectors, texts: Sequence[str]) -> Scores:
        """Return each skill's cosine to the text that it is nearest to."""
        asked = self._query_encoder.encode(texts)
        nearest: Scores = (vectors @ asked.T).max(axis=1).astype(np.float64)
        return nearest

    @functools.cached_property
    def _heads(self) -> list[str]:
        rows = self._skills.select("name", "description").iter_rows()
        return [f"{name}\n{description}" for name, description in rows]

    @functools.cached_property
    def _lexical_head(self) -> Bm25:
        return Bm25(self._heads)

    @functools.cached_property
    def _lexical_full(self) -> Bm25:
        bodies = self._skills["body"].to_list()
        return Bm25([f"{head}\n{body}" for head, body in zip(self._heads, bodies, strict=True)])

    @functools.cached_property
    def _head_vectors(self) -> Vectors:
        return self._encoder.encode(self._heads)

    @functools.cached_property
    def _full_vectors(self) -> Vectors:
        rows = self._skills.select("name", "description", "body").iter_rows()
        texts = [f"{name} | {description} | {body[:_FULL_CHARACTERS]}" for name, description, body in rows]
        return self._encoder.encode([first_tokens(text, FULL_TOKENS, self._encoder) for text in texts])


# Names of methods; `description` is name and description, `full` these and the body.
BASELINES = (
    "bm25-description", "bm25-full", "dense-description", "dense-full", "sentences", *_FUSED, "zsum",
)  # fmt: skip
LEXICAL = frozenset({"bm25-description", "bm25-full", *_FUSED, "zsum"})  # those that need BM25


def sentences(task: str) -> list[str]:
    """Return the sentences and lines of a task that have three words or more, else the task itself."""
    found = [part.strip() for part in BASELINE_BREAK.split(task) if len(_words(part)) >= _SENTENCE_WORDS]
    return list(dict.fromkeys(found)) or [task]


def standardised(scores: Scores) -> npt.NDArray[np.float64]:
    """Return scores less their mean over all skills, in standard deviations; zeros where all are equal."""
    spread = scores.std()
    result: npt.NDArray[np.float64] = (scores - scores.mean()) / (spread if spread > 0 else 1.0)
    return result


_LEXICAL = RouterSettings(whole=0.0, facets=0.0, learned=0.0)
_BM25F = replace(_LEXICAL, described=0.0, again=0.0)
_FIELD = "default-lexical-"
_RERANK = "default-rerank-"
_SETTINGS = {
    "default": RouterSettings(),
    **{f"{_RERANK}{rerank}": RouterSettings() for rerank in RERANKS},
    "default-lexical": _LEXICAL,
    "default-dense": RouterSettings(lexical=0.0, described=0.0, learned=0.0),
    "default-no-body": RouterSettings(learned=0.0),  # which knows bodies
    "default-no-facets": RouterSettings(facets=0.0),
    "default-no-described": RouterSettings(described=0.0),
    "default-no-learned": RouterSettings(learned=0.0),
    "default-no-again": RouterSettings(again=0.0),
    **{f"{_FIELD}{field}": _BM25F for field in FIELDS},
}
# `default`; with another reranker; its legs' sum without one part; one leg, and one field of that.
ABLATIONS = tuple(_SETTINGS)


class Ablations:
    """Makes retrievers of one corpus that share postings and vectors; the order of skills breaks ties.

    `rerank`, of `RERANKS`, is what `default` reads the first skills with; all other parts of it do without.
    """

    def __init__(
        self, skills: Sequence[Skill], encoder: Encoder, query_encoder: Encoder, fit: FitModel | None = None,
        rerank: str = NONE,
    ) -> None:  # fmt: skip
        self._skills, self._encoder, self._query_encoder, self._fit = skills, encoder, query_encoder, fit
        self._rerank = rerank

    def router(self, name: str) -> Router:
        """Return one of `ABLATIONS`."""
        ids, names = [skill.doc_id for skill in self._skills], [skill.name for skill in self._skills]
        lexical, sketches = lexical_of(self._postings, fields_of(name)), self._postings.sketches
        settings = _SETTINGS[name]
        fit = self._fit if name == "default" else None
        reach = REACHES.get(self._rerank if name == "default" else name.removeprefix(_RERANK))
        reader = SkillReader(partial(packaged_pair_scorer, 1), self._tokens.of, reach) if reach else None
        return Router(
            ids, names, lexical, sketches, self._vectors, self._query_encoder, settings, fit, reader,
            self._learned if settings.learned else None,
        )  # fmt: skip

    @functools.cached_property
    def _learned(self) -> LearnedLeg | None:
        """The learned leg, which is of the default encoder's vectors, as fit is."""
        if self._fit is None:
            return None
        return LearnedLeg(packaged_retriever(1).skills(self._tokens), partial(packaged_retriever, 1))

    @functools.cached_property
    def _tokens(self) -> SkillTokens:
        return skill_tokens_of(self._skills)

    @functools.cached_property
    def _postings(self) -> Postings:
        return postings_of(self._skills)

    @functools.cached_property
    def _vectors(self) -> Vectors:
        return self._encoder.encode([skill.head for skill in self._skills])


def fields_of(name: str) -> Bm25fSettings:
    """Return the constants of BM25F for one of `ABLATIONS`: a field left out weighs 0."""
    usual = Bm25fSettings()
    left_out = {"body"} if name == "default-no-body" else set()
    if name.startswith(_FIELD):
        left_out = set(FIELDS) - {name.removeprefix(_FIELD)}
    a, b, c, d = (
        0.0 if field in left_out else weight for field, weight in zip(FIELDS, usual.weights, strict=True)
    )
    return replace(usual, weights=(a, b, c, d))


_ANSWERED, _FOLDED = 10, 100  # skills that `search` answers with, which is timed; those folded as it does


def as_served(router: Router, encoder: Remembering) -> RoutingMethod:
    """Return the default router as a method; `encoder` is its encoder of tasks, which remembers."""
    timed = whole(lambda task, _depth: _answer(router, task), encoder=encoder)

    def run(task: str, depth: int) -> Sequence[StageRanking]:
        (answered,) = timed(task, depth)
        return [replace(answered, doc_ids=deep(router, task, depth))]

    return run


def deep(router: Router, task: str, depth: int) -> list[str]:
    """Return a ranking deeper than anyone asks for; near-identical skills are folded at the first ranks only.

    Folding compares each skill with all before it, which at a depth of a thousand would be all that is timed.
    """
    top = router.rank(task, min(_FOLDED, depth))
    hidden = {doc_id for found in top for doc_id in found.folded}
    rest = (found.doc_id for found in router.rank(task, depth, fold=False))
    shown = [found.doc_id for found in top]
    return list(dict.fromkeys([*shown, *(doc_id for doc_id in rest if doc_id not in hidden)]))[:depth]


def _answer(router: Router, task: str) -> RoutingAnswer:
    found = router.rank(task, _ANSWERED)
    return RoutingAnswer([one.doc_id for one in found], found[0].score, found[0].fit)
