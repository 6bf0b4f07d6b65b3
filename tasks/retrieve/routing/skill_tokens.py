"""Skill tokens: what the reranker reads of each skill, as ids of the default encoder's tokens, made ahead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tasks.models.adapted_encoder import base_tokenizer
from tasks.retrieve.routing.skill import Skill

Ids: TypeAlias = npt.NDArray[np.uint16]
HEAD_TOKENS, BODY_TOKENS = 96, 768  # kept of name and description, and of the body, at most
_CHARACTERS = 4000  # of a body that are cut into tokens: seldom fewer tokens than are kept, in English
_AT_ONCE = 500
_LAST_ID = np.uint16(30_521)


@dataclass(frozen=True, slots=True)
class SkillTokens:
    """Tokens by row, without special ones.

    Of row `i`, `ids[starts[i]:bodies[i]]` are of name and description, `ids[bodies[i]:starts[i + 1]]` of the
    body. `ids` has shape `(T,)`, `starts` `(N + 1,)`, `bodies` `(N,)`.
    """

    ids: Ids
    starts: npt.NDArray[np.int64]
    bodies: npt.NDArray[np.int64]

    def of(self, row: int) -> tuple[Ids, Ids]:
        """Return the tokens of a skill's name and description, and those of its body."""
        begin, body, end = int(self.starts[row]), int(self.bodies[row]), int(self.starts[row + 1])
        # A byte that a disk has changed must not be an id that there is not; `doctor` finds it.
        ids = np.minimum(self.ids[begin:end], _LAST_ID)
        return ids[: body - begin], ids[body - begin :]

    def whole(self) -> bool:
        """Return whether the places are those of the tokens."""
        if len(self.starts) != len(self.bodies) + 1:
            return False
        rising = np.empty(2 * len(self.bodies) + 1, dtype=np.int64)
        rising[::2], rising[1::2] = self.starts, self.bodies
        return rising[0] == 0 and rising[-1] == len(self.ids) and bool((np.diff(rising) >= 0).all())


def skill_tokens_of(skills: Iterable[Skill]) -> SkillTokens:
    """Return the tokens of skills; rows follow their order."""
    left, parts = iter(skills), list[Ids]()
    while some := list(islice(left, _AT_ONCE)):
        heads = _cut([f"{s.name}. {s.description[:_CHARACTERS]}" for s in some], HEAD_TOKENS)
        bodies = _cut([s.body[:_CHARACTERS] for s in some], BODY_TOKENS)
        parts += chain.from_iterable(zip(heads, bodies, strict=True))
    return _of(parts)


def joined_tokens(parts: Sequence[SkillTokens]) -> SkillTokens:
    """Return the tokens of several parts; the rows of the first part come first."""
    return _of([ids for part in parts for row in range(len(part.bodies)) for ids in part.of(row)])


def kept_tokens(tokens: SkillTokens, rows: npt.NDArray[np.int64]) -> SkillTokens:
    """Return the tokens of some rows, in the order given."""
    return _of([ids for row in rows.tolist() for ids in tokens.of(row)])


def _cut(texts: Sequence[str], most: int) -> list[Ids]:
    found = base_tokenizer().encode_batch_fast(texts, add_special_tokens=False)
    return [np.array(one.ids[:most], dtype=np.uint16) for one in found]


def _of(parts: Sequence[Ids]) -> SkillTokens:
    """Return tokens whose rows are a head and a body, one after the other."""
    places = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    ids = np.concatenate([np.zeros(0, np.uint16), *parts])
    return SkillTokens(ids, places[::2], places[1::2])
