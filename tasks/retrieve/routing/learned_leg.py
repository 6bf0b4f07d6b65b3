"""Learned leg: vectors of requests and skills whose cosine was learned from requests.

A bi-encoder (Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020) of low-rank adapters on the default
encoder for requests; skills keep the vectors of their heads, which a linear map changes and to which another
adds what their bodies say. So it needs no reading of skills. `data/retriever-1.md` is its card.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from storage.folder import threads_of_process
from tasks.models.adapted_encoder import FIRST, LAST, WIDTH, AdaptedEncoder, word_vectors
from tasks.models.preloaded import Preloaded
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.skill_tokens import Ids, SkillTokens

FILE = Path(__file__).parents[1] / "data" / "retriever-1.npz"
QUERY = 96  # tokens of a request that are read
_CHARACTERS = 2000  # of a request that are cut into tokens
_RARITY_POWER = 1.5
_BLOCK = 256


class RequestEncoder:
    """Encodes requests.

    Args:
        arrays: The adapters (see `AdaptedEncoder`).
        threads: Calls at a time, each on one thread.
    """

    def __init__(self, arrays: dict[str, Any], threads: int = 1) -> None:
        self._encoder = AdaptedEncoder(arrays, threads)

    def encode(self, request: str) -> tuple[Vectors, float]:
        """Return the unit vector of a request, shape `(384,)`, and the share of it that was read, 0 to 1."""
        ids = self._encoder.ids(request[:_CHARACTERS])
        if not ids:
            return np.zeros(WIDTH, dtype=np.float32), 0.0
        state = self._encoder.states([[FIRST, *ids[:QUERY], LAST]])[0].mean(axis=0)
        return state / np.linalg.norm(state), min(1.0, QUERY / len(ids))


class SkillMap(NamedTuple):
    """How vectors of skills are made: `head` and `body` have shape `(384, 384)`, `skip` none.

    `rarity` `(ids,)` is how rare a token is among skills; bodies have `mean` `(384,)` and `common`, the
    direction in which most of them lie.
    """

    head: Vectors
    body: Vectors
    skip: Vectors
    rarity: Vectors
    mean: Vectors
    common: Vectors

    def vectors(self, heads: Vectors, tokens: SkillTokens) -> Vectors:
        """Return the unit vectors of skills, shape `(rows, 384)`, from those of their heads and tokens."""
        terms, words, found = body_terms(tokens, self.rarity), word_vectors(), np.empty_like(heads)
        for at in range(0, len(heads), _BLOCK):
            # Blocks of one size, so that a row's vector does not depend on those beside it.
            block, bodies = np.zeros((2, _BLOCK, heads.shape[1]), dtype=np.float32)
            some = heads[at : at + _BLOCK]
            block[: len(some)], bodies[: len(some)] = some, terms[at : at + _BLOCK] @ words
            bodies = self.centred(bodies)
            made = unit(block + block @ self.head + self.skip * bodies + bodies @ self.body)
            found[at : at + _BLOCK] = made[: len(some)]
        return found

    def centred(self, bodies: Vectors) -> Vectors:
        """Return unit vectors of bodies, less what all share."""
        told = unit(bodies) - self.mean
        return unit(told - np.outer(told @ self.common, self.common))


def body_terms(tokens: SkillTokens, rarity: Vectors) -> csr_array:
    """Return how much each token counts in each body, shape `(rows, ids)`."""
    found, counts, ends = list[Ids](), list[Vectors](), [0]
    for row in range(len(tokens.bodies)):
        ids, times = np.unique(tokens.of(row)[1], return_counts=True)
        found.append(ids)
        counts.append(1 + np.log(times.astype(np.float32)))
        ends.append(ends[-1] + len(ids))
    ids = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)
    worth = np.concatenate([np.zeros(0, np.float32), *counts]) * np.maximum(rarity, 0)[ids] ** _RARITY_POWER
    return csr_array((worth.astype(np.float32), ids, ends), (len(tokens.bodies), len(rarity)))


def unit(vectors: Vectors) -> Vectors:
    """Return vectors of length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


class LearnedLeg:
    """Tells how near skills are to a request by what was learned.

    Args:
        vectors: Of skills, as `SkillMap.vectors` makes them, shape `(rows, 384)`.
        model: Loads what encodes requests, when the first one comes.
    """

    def __init__(self, vectors: Vectors, model: Callable[[], RequestEncoder]) -> None:
        self._vectors, self._model = vectors, Preloaded(model)

    def begin(self) -> None:
        """Begin to load the model, in a thread of its own."""
        self._model.begin()

    def cosines(self, request: str) -> tuple[Vectors, float]:
        """Return the cosine of each row to a request, shape `(rows,)`, and the share of it that was read."""
        vector, share = self._model.get().encode(request)
        return self._vectors @ vector, share


@functools.lru_cache(maxsize=1)
def skill_map(file: Path = FILE) -> SkillMap:
    """Return what makes vectors of skills, by default as it comes with the package."""
    with np.load(file, allow_pickle=False) as held:
        return SkillMap(*(held[name].astype(np.float32) for name in SkillMap._fields))


@functools.lru_cache(maxsize=2)
def packaged_request_encoder(threads: int | None) -> RequestEncoder:
    """Return what encodes requests, as it comes with the package, one a process; None: a thread a core."""
    with np.load(FILE, allow_pickle=False) as held:
        return RequestEncoder(dict(held), threads or threads_of_process())
