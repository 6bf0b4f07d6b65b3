"""Learned leg: vectors of requests and skills whose cosine was learned from requests.

A bi-encoder (Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020) of low-rank adapters on the default
encoder. Of a skill it reads name and description; what its body says is added by a linear map of the mean of
its tokens, which costs no reading. `data/retriever-1.md` is its card.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.folder import threads_of_process
from tasks.models.adapted_encoder import FIRST, LAST, UNKNOWN, WIDTH, AdaptedEncoder, token_vectors
from tasks.models.preloaded import Preloaded, loaded_once
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit
from tasks.retrieve.routing.coarse import Coarse
from tasks.retrieve.routing.micro_batches import cosines
from tasks.retrieve.routing.skill_tokens import Ids, SkillTokens, kept_tokens

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FILE = Path(__file__).parents[1] / "data" / "retriever-1.npz"
QUERY, HEAD = 96, 64  # tokens of a request, and of name and description, that are read
_CHARACTERS = 2000  # of a request that are cut into tokens
_RARITY_POWER = 1.5
_BLOCK, _CHUNK = 256, 8192  # rows that are added up at once, and that are held as more than tokens


class Learned(NamedTuple):
    """What is told of a request: the cosine of each row, `(rows,)`, the share that was read, and its vector.

    `foretold`, `(rows,)`, is its cosine to what was foretold, 0 where nothing was; None: nothing was of any.
    """

    cosines: Vectors
    share: float
    foretold: Vectors | None
    request: Vectors


class BodyMap(NamedTuple):
    """How what a body says becomes part of its skill's vector: `body` has shape `(384, 384)`, `skip` none.

    `rarity` `(ids,)` is how rare a token is among skills, `mean` `(384,)` the mean of bodies, and `common`
    `(384,)` the direction in which most of them lie.
    """

    body: Vectors
    skip: Vectors
    rarity: Vectors
    mean: Vectors
    common: Vectors

    def added(self, tokens: SkillTokens) -> Vectors:
        """Return what bodies add to the unit vectors of their heads, shape `(rows, 384)`."""
        terms, words = body_terms(tokens, self.rarity), token_vectors()
        turned = np.ascontiguousarray(self.body.T)
        found = np.empty((len(tokens.bodies), WIDTH), dtype=np.float32)
        for at in range(0, len(found), _BLOCK):
            bodies = self.centred(terms[at : at + _BLOCK] @ words)
            # A plain product of matrices depends, in its last bits, on where a row stands.
            found[at : at + _BLOCK] = self.skip * bodies + cosines(turned, bodies)
        return found

    def centred(self, summed: Vectors) -> Vectors:
        """Return unit vectors of sums of tokens, less what all bodies share."""
        told = unit(summed) - self.mean
        return unit(told - cosines(self.common[None], told) * self.common)


class Retriever:
    """Makes the vectors of requests and skills.

    `arrays` holds the adapters (see `AdaptedEncoder`), and the fields of `BodyMap`. `threads`: batches that
    are read at a time, each on one thread; None: one a core.
    """

    def __init__(self, arrays: dict[str, Any], threads: int | None = None) -> None:
        self._threads = threads or threads_of_process()
        self._encoder = AdaptedEncoder(arrays, threads_of_process())
        self._map = BodyMap(*(np.asarray(arrays[name], dtype=np.float32) for name in BodyMap._fields))

    def requests(self, texts: Sequence[str]) -> tuple[Vectors, list[float]]:
        """Return the unit vectors of requests, shape `(texts, 384)`, and the share read of each, 0 to 1.

        Tokens that the default encoder does not know, as of most Chinese characters, are not read.
        """
        ids = [self._encoder.ids(text[:_CHARACTERS]) for text in texts]
        known = [sum(token != UNKNOWN for token in of[:QUERY]) / max(len(of), 1) for of in ids]
        cut = [min(1.0, _CHARACTERS / max(len(text), 1)) for text in texts]
        return self._encoded([of[:QUERY] for of in ids]), [a * b for a, b in zip(cut, known, strict=True)]

    def skills(self, tokens: SkillTokens) -> Vectors:
        """Return the unit vectors of skills, shape `(rows, 384)`."""
        found = np.empty((len(tokens.bodies), WIDTH), dtype=np.float32)
        for at in range(0, len(found), _CHUNK):
            part = kept_tokens(tokens, np.arange(at, min(at + _CHUNK, len(found))))
            heads = [part.of(row)[0][:HEAD].tolist() for row in range(len(part.bodies))]
            found[at : at + _CHUNK] = unit(self._encoded(heads) + self._map.added(part))
        return found

    def _encoded(self, texts: Sequence[Sequence[int]]) -> Vectors:
        whole = [[FIRST, *text, LAST] for text in texts]
        return unit(self._encoder.told(whole, lambda states: states.mean(axis=1), self._threads))


def body_terms(tokens: SkillTokens, rarity: Vectors) -> csr_array:
    """Return how much each token counts in each body, shape `(rows, ids)`."""
    from scipy.sparse import csr_array  # noqa: PLC0415 (a search needs none)

    found, counts, ends = list[Ids](), list[Vectors](), [0]
    for row in range(len(tokens.bodies)):
        ids, times = np.unique(tokens.of(row)[1], return_counts=True)
        found.append(ids)
        counts.append(1 + np.log(times.astype(np.float32)))
        ends.append(ends[-1] + len(ids))
    ids = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)
    worth = np.concatenate([np.zeros(0, np.float32), *counts]) * np.maximum(rarity, 0)[ids] ** _RARITY_POWER
    return csr_array((worth.astype(np.float32), ids, ends), (len(tokens.bodies), len(rarity)))


class LearnedLeg:
    """Tells how near skills are to a request by what was learned.

    Args:
        vectors: Of skills, as `Retriever.skills` makes them, shape `(rows, 384)`.
        model: Loads what encodes requests, when the first one comes.
        foretold: Vectors of requests that were foretold of skills, of the same shape; None: there are none.
        coarse: The vectors with their principal axes: then these alone tell the cosines of all rows.
    """

    def __init__(
        self, vectors: Vectors, model: Callable[[], Retriever], foretold: Vectors | None = None,
        coarse: Coarse | None = None,
    ) -> None:  # fmt: skip
        self.coarse, self._model, self._foretold = coarse, Preloaded(model), foretold
        self._cosines = coarse.cosines if coarse else partial(cosines, vectors)

    def begin(self) -> None:
        """Begin to load the model, in a thread of its own."""
        self._model.begin()

    def cosines(self, requests: Sequence[str]) -> list[Learned]:
        """Return what is told of each request."""
        vectors, shares = self._model.get().requests(requests)
        near = [None] * len(shares) if self._foretold is None else cosines(self._foretold, vectors)
        return [*map(Learned, self._cosines(vectors), shares, near, vectors)]


@functools.lru_cache(maxsize=1)
def packaged_digest() -> str:
    """Return the SHA-256 of the packaged weights: vectors of others are not comparable."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


@loaded_once(2)
def packaged_retriever(threads: int | None) -> Retriever:
    """Return the model that comes with the package, one a process; `threads` as of `Retriever`."""
    with np.load(FILE, allow_pickle=False) as held:
        return Retriever(dict(held), threads)
