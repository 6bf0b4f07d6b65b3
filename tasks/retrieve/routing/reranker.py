"""Reranker: reads the request beside each of the first skills, which what is indexed of a skill cannot.

A cross-encoder (Nogueira and Cho, "Passage Re-ranking with BERT", 2019) of low-rank adapters on the default
encoder; `data/reranker-2.md` is its card. Its score joins the sum of the legs as a part of its own, and tells
with what the legs say whether a skill serves (`fit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.folder import threads_of_process
from tasks.models.adapted_encoder import FIRST, LAST, AdaptedEncoder
from tasks.models.preloaded import Preloaded, loaded_once
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.skill_tokens import Ids

FILE = Path(__file__).parents[1] / "data" / "reranker-2.npz"
QUERY = 96  # tokens of a request that are read
HEAD = 56  # tokens of name and description, unless the body leaves room
_CHARACTERS = 2000  # of a request that are cut into tokens
# Scores beyond these count as these, so that a text made to be read moves a skill only so far.
_LEAST, _MOST = -4.0, 8.0
_Scores: TypeAlias = npt.NDArray[np.float32]


class Reach(NamedTuple):
    """How many skills are read, how many tokens of each, and the weight of a score beside the legs' sum."""

    skills: int
    tokens: int
    weight: float

    def part(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Return what scores add to the legs' sum."""
        return np.asarray(self.weight * np.clip(scores, _LEAST, _MOST))


REACHES = {"fast": Reach(8, 48, 0.8), "best": Reach(12, 96, 0.8)}
NONE = "none"
RERANKS = (NONE, *REACHES)
DEFAULT_RERANK = "best"


class PairScorer:
    """Scores pairs of a request and a skill: the higher, the likelier that the skill serves it.

    Scores are log odds against no skill of a list being right; as probabilities they are too sure. `arrays`
    holds the adapters (see `AdaptedEncoder`), `head.w` `(768,)` and `head.b` `()` over the first state and
    the mean state, and `rarity` `(ids,)`, how rare a token is among skills. `threads`: batches that are read
    at a time, each on one thread; None: one a core.
    """

    def __init__(self, arrays: dict[str, Any], threads: int | None = None) -> None:
        self.threads = threads or threads_of_process()
        self._encoder = AdaptedEncoder(arrays, threads_of_process())
        self._weights, self._bias = (np.asarray(arrays[f"head.{n}"], dtype=np.float32) for n in "wb")
        self._rarity = np.asarray(arrays["rarity"], dtype=np.float32)

    def scores(self, query: str, skills: Sequence[tuple[Ids, Ids]], tokens: int) -> _Scores:
        """Return the score of each skill for a request, shape `(skills,)`; zeros for one without tokens.

        A skill is the tokens of its head and of its body, of both of which at most `tokens` are read.
        """
        asked = self._encoder.ids(query[:_CHARACTERS])[:QUERY]
        if not asked:
            return np.zeros(len(skills), dtype=np.float32)
        pairs = [pair_of(asked, skill, tokens, self._rarity)[0] for skill in skills]

        def tell(states: Vectors) -> _Scores:
            return np.hstack([states[:, 0], states.mean(axis=1)]) @ self._weights + self._bias

        return self._encoder.told(pairs, tell, self.threads, second=len(asked) + 2)


def pair_of(
    asked: Sequence[int], skill: tuple[Ids, Ids], tokens: int, rarity: Vectors
) -> tuple[list[int], int]:
    """Return the ids of a request and of at most `tokens` of a skill, and the place where the latter begin.

    Of the skill its head is read, and the part of its body that says most of the request.
    """
    head, body = skill
    opening = head[: max(HEAD, tokens - 1 - len(body))].tolist()
    part = best_window(asked, body, tokens - 1 - len(opening), rarity).tolist()
    return [FIRST, *asked, LAST, *[*opening, LAST, *part][:tokens], LAST], len(asked) + 2


def best_window(asked: Sequence[int], body: Ids, width: int, rarity: Vectors) -> Ids:
    """Return the `width` tokens of a body that hold most of the request's tokens, by how rare they are.

    A token counts the less, the oftener the body has it. Ties go to what stands first.
    """
    if len(body) <= width or width <= 0:
        return body[: max(width, 0)]
    tokens, places, counts = np.unique(body, return_inverse=True, return_counts=True)
    worth = np.where(np.isin(tokens, asked), rarity[tokens], 0) / np.sqrt(counts)
    sums = np.concatenate([[0.0], np.cumsum(worth[places])])
    begin = int(np.argmax(sums[width:] - sums[:-width]))
    return body[begin : begin + width]


class SkillReader:
    """Reads the first skills of a ranking.

    Args:
        model: Loads the model, when the first request comes.
        tokens_of: Returns the tokens of a row's head and body.
        reach: Of `REACHES`.
    """

    def __init__(
        self, model: Callable[[], PairScorer], tokens_of: Callable[[int], tuple[Ids, Ids]], reach: Reach
    ) -> None:
        self.reach, self._model, self._tokens_of = reach, Preloaded(model), tokens_of

    def begin(self) -> None:
        """Begin to load the model, in a thread of its own, while the legs look for the first skills."""
        self._model.begin()

    def scores(self, query: str, rows: Sequence[int]) -> _Scores:
        """Return the scores of rows for a request; each is the same whatever other rows are read."""
        return self._model.get().scores(query, [self._tokens_of(row) for row in rows], self.reach.tokens)


@loaded_once(2)
def packaged_pair_scorer(threads: int | None) -> PairScorer:
    """Return the model that comes with the package, one a process; `threads` as of `PairScorer`."""
    with np.load(FILE, allow_pickle=False) as held:
        return PairScorer(dict(held), threads)
