"""Ranking of the rows that fit a step, in the context of its whole task; and the confidence in the first.

Each step is scored once a task. The ranking is a conditional logit (McFadden, 1974) over features of a row
and a step, the confidence a logistic regression over its scores; `data/steps-1.md` is their card.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.models.protocols import Vectors
from tasks.retrieve.compose.drafts import DraftStep, leads
from tasks.retrieve.compose.task_model import TaskModel
from tasks.retrieve.routing.coarse import leading
from tasks.retrieve.routing.postings import function_terms, term_counts
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import RowFacts

MOST = 40  # rows that are kept of a step's ranking; hints and candidates are among them
NEAR = 1.0  # weight of what a step seeks beside its words
_COMMON = "mcp server servers mcpserver tool tools api ai agent skill python typescript client official"
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE = re.compile(r"[.!?:]['\")]?\s")
WordScores = npt.NDArray[np.float32]


class Rows(Protocol):
    """The rows of one index: what scores them, and what is held of them by their places."""

    @property
    def router(self) -> Router:
        """WordScores all rows."""

    def facts(self, places: Sequence[int], /) -> list[RowFacts]:
        """Return what is held in memory of rows."""

    def rows(self, places: Sequence[int], /) -> list[dict[str, Any]]:
        """Return rows."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The best rows for a step, best first, with their scores, `(rows,)`; and parts of every row's score.

    Scores are in standard deviations. `words` and `near` have an entry for every row of the index. `near` is
    by `sought`, a unit vector of shape `(dimension,)`.
    """

    rows: npt.NDArray[np.int64]
    scores: WordScores
    words: WordScores
    near: WordScores
    sought: Vectors


class Matcher:
    """Scores the rows of one index for the steps of one task.

    Args:
        model: Tells what steps of the task seek among vectors of name and description; None: the vectors of
            their texts tell it.
        allowed: Marks the rows that may be found, shape `(rows,)`; None: all.
        most: Rows that are kept of a step's ranking.
    """

    def __init__(
        self, index: Rows, model: TaskModel | None = None, task: str = "",
        allowed: npt.NDArray[np.bool_] | None = None, most: int = MOST,
    ) -> None:  # fmt: skip
        self.index, self.router, self.most = index, index.router, most
        self._model, self._task, self._allowed = model, task, allowed
        self._known: dict[DraftStep, Matches] = {}

    def find(self, steps: Sequence[DraftStep]) -> list[Matches]:
        """Return the matches of steps; rows of equal score by place."""
        new = [step for step in dict.fromkeys(steps) if step not in self._known]
        if new:
            vectors = self._sought(new)
            for step, near, vector in zip(new, self.router.nearness(vectors), vectors, strict=True):
                words = self.router.words(step.text)
                total = words + np.float32(NEAR) * near
                best = self.best_of(total, self.most)
                self._known[step] = Matches(best, total[best], words, near, vector)
        return [self._known[step] for step in steps]

    def _sought(self, steps: Sequence[DraftStep]) -> Vectors:
        if self._model is None:
            return self.router.encode([step.text for step in steps])
        return self._model.sought(self._task, steps)

    def best_of(self, scores: WordScores, most: int) -> npt.NDArray[np.int64]:
        """Return the `most` best rows that may be found, best first; of equal score by place."""
        rows = np.arange(len(scores)) if self._allowed is None else np.flatnonzero(self._allowed)
        rows = leading(rows, scores, most)
        return np.asarray(rows[np.argsort(-scores[rows], kind="stable")[:most]])

    def hints(self, steps: Sequence[DraftStep], most: int) -> tuple[int, ...]:
        """Return the `most` best rows for any of some steps, best first (algorithm 1, line 4)."""
        best: dict[int, float] = {}
        for found in self.find(steps):
            for row, score in zip(found.rows[:most].tolist(), found.scores[:most].tolist(), strict=True):
                best[row] = max(score, best.get(row, score))
        return tuple(sorted(best, key=lambda row: (-best[row], row))[:most])

    @functools.cached_property
    def services(self) -> frozenset[str]:
        """What is served that the task names, in lower case: its proper nouns that are in rows' names."""
        best = self.best_of(self.router.words(self._task), MOST).tolist()
        known = frozenset[int]().union(*map(name_terms, self.index.facts(best)))
        return frozenset(proper_nouns(self._task, known))


def proper_nouns(text: str, known: frozenset[int]) -> Iterator[str]:
    """Yield runs of words with a capital, other than where a sentence begins, that have known terms."""
    run, end = list[str](), 0
    for found in _WORD.finditer(text):
        between, word = text[end : found.start()], found[0].removesuffix("'s").removesuffix("’s")
        begins = not end or _SENTENCE.search(between) is not None
        capital = any(map(str.isupper, word[1:] if begins else word))
        follows, named = not between.strip(), capital and not known.isdisjoint(term_counts(word))
        if run and not (named and follows):
            yield " ".join(run)
            run = []
        if named:
            run.append(word.lower())
        end = found.end()
    if run:
        yield " ".join(run)


def name_terms(fact: RowFacts) -> frozenset[int]:
    """Return the terms that tell a row's name and the end of its id from others."""
    return frozenset(term_counts(f"{fact.name} {fact.doc_id.rpartition('/')[2]}")) - _common_terms()


@functools.cache
def _common_terms() -> frozenset[int]:
    return frozenset(term_counts(_COMMON)) | function_terms()


FITTED = Path(__file__).parent / "data" / "fitted-1.json"
RANKING_FEATURES = (
    "words", "root", "sought", "task_words", "lead_words", "elsewhere", "named", "named_in_task",
    "named_elsewhere", "category", "length",
)  # fmt: skip
_FURTHER = 10  # rows that fit a step with what leads to it, or what it seeks, and not its own words
_NEAR = 10  # best rows among which a category is counted
Scores = npt.NDArray[np.float64]
_TAKEN = ("words", "named", "named_in_task")
CONFIDENCE_FEATURES = ("constant", "share", "lead", *_TAKEN, "cosine")


@functools.lru_cache(maxsize=1)
def fitted(file: Path = FITTED) -> Mapping[str, Mapping[str, float]]:
    """Return the packaged weights by model and by feature."""
    held: Mapping[str, Mapping[str, float]] = json.loads(file.read_text("utf-8"))
    return held


@dataclass(frozen=True, slots=True)
class StepRanking:
    """The rows that fit a step, best first, with their scores and features, shape `(rows, features)`.

    `cosines` are those of what the step seeks and each row, which no other row changes, shape `(rows,)`.
    """

    rows: tuple[int, ...]
    scores: Scores
    features: Scores
    cosines: Scores

    def shares(self) -> Scores:
        """Return the probability of each row that it serves the step, given that one of them does."""
        likely = np.exp(self.scores - self.scores.max()) if len(self.scores) else self.scores
        return np.asarray(likely / likely.sum()) if len(likely) else likely


class StepRanker:
    """Ranks rows for the steps of one task.

    `weights`: of `RANKING_FEATURES`; None: the packaged ones.
    """

    def __init__(self, matcher: Matcher, weights: Scores | None = None) -> None:
        self._matcher = matcher
        self._weights = packaged_weights() if weights is None else weights

    def rank(self, task: str, steps: Sequence[DraftStep]) -> list[StepRanking]:
        """Return the ranking of each step; they stand in the order in which the task tells them."""
        if not steps:
            return []
        router, own = self._matcher.router, self._matcher.find(steps)
        whole, before = router.words(task), leads(task, [step.spans for step in steps])
        terms = [set(term_counts(step.text)) for step in steps]
        every, rankings = set(term_counts(task)), []
        for k, (step, lead) in enumerate(zip(steps, before, strict=True)):
            led = router.words(f"{lead} {step.text}") if lead.strip() else own[k].words
            rows = self._pool(own[k], led)
            facts = self._matcher.index.facts(rows)
            others = [found for j, found in enumerate(own) if j != k]
            elsewhere = set[int]().union(*terms[:k], *terms[k + 1 :]) - terms[k]
            columns = [
                *_fits(rows, own[k], whole, led, others),
                *self._named(facts, terms[k], every, elsewhere),
            ]
            columns += [_shares(facts), np.log1p([fact.n_tokens for fact in facts])]
            cosines = (router.vectors[rows] @ own[k].sought).astype(np.float64)
            rankings.append(self._ranking(rows, np.stack(columns, axis=1).astype(np.float64), cosines))
        return rankings

    def _pool(self, own: Matches, led: WordScores) -> list[int]:
        further = (led, own.near)
        best = [self._matcher.best_of(scores, _FURTHER).tolist() for scores in further]
        return list(dict.fromkeys([*own.rows.tolist(), *best[0], *best[1]]))

    def _ranking(self, rows: Sequence[int], features: Scores, cosines: Scores) -> StepRanking:
        scores = features @ self._weights
        order = np.argsort(-scores, kind="stable")
        return StepRanking(tuple(rows[i] for i in order), scores[order], features[order], cosines[order])

    def _named(self, facts: Sequence[RowFacts], *among: set[int]) -> list[Scores]:
        """Return for each set of terms the share of each row's name that is among them, weighed by rarity."""
        names = [name_terms(fact) for fact in facts]
        every = sorted(set().union(*names))
        rarity = dict(zip(every, self._matcher.router.rarities(every).tolist(), strict=True))
        whole = [sum(rarity[term] for term in name) or 1.0 for name in names]
        return [
            np.array(
                [sum(rarity[t] for t in name & terms) / mass for name, mass in zip(names, whole, strict=True)]
            )
            for terms in among
        ]


def _fits(
    rows: Sequence[int], own: Matches, whole: WordScores, led: WordScores, others: Sequence[Matches],
) -> list[npt.NDArray[np.floating[Any]]]:  # fmt: skip
    """Return how rows fit the step, the task, the step with what leads to it, and better another step."""
    at = list(rows)
    words, near = own.words[at], own.near[at]
    best = np.max([found.words[at] for found in others], axis=0) if others else np.zeros(len(at))
    return [
        words, np.sqrt(np.maximum(words, 0)), near, whole[at], led[at], np.maximum(best - words, 0),
    ]  # fmt: skip


def _shares(facts: Sequence[RowFacts]) -> Scores:
    counted = Counter(fact.category for fact in facts[:_NEAR])
    return np.array([counted[fact.category] / _NEAR for fact in facts])


def packaged_weights() -> Scores:
    """Return the packaged weights of `RANKING_FEATURES`."""
    held = fitted()["ranking"]
    return np.array([held[name] for name in RANKING_FEATURES])


def confidence(ranking: StepRanking, at: int = 0) -> float:
    """Return how likely a row of a ranking serves its step, in [0, 1]; 0 without rows."""
    if not ranking.rows:
        return 0.0
    weights = np.array([fitted()["confidence"][name] for name in CONFIDENCE_FEATURES])
    return 1 / (1 + math.exp(-float(confidence_features(ranking, at) @ weights)))


def confidence_features(ranking: StepRanking, at: int = 0) -> Scores:
    """Return `CONFIDENCE_FEATURES` of one row; but for shares and leads, no other row changes them much."""
    own = dict(zip(RANKING_FEATURES, ranking.features[at].tolist(), strict=True))
    others = np.delete(ranking.scores, at)
    lead = float(ranking.scores[at] - others.max()) if len(others) else 0.0
    taken, cosine = [own[name] for name in _TAKEN], float(ranking.cosines[at])
    return np.array([1.0, ranking.shares()[at], lead, *taken, cosine])
