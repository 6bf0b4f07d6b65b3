"""SkillRouter's two stages over one form of a skill, `name | description | body`: retrieve, rerank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.models.with_torch.cross_encoder import PairScorer
from tasks.retrieve.routing.skill import Skill

RETRIEVED = 20

"""Candidates that the reranker gets: SkillRouter found more to do harm (appendix, table 12)."""

ENCODED = (300, 2500)
RERANKED = (500, 3000)

"""Tokens of the description and of the body that each stage reads (SkillRouter, appendix C)."""


def flat_text(skill: Skill, limits: tuple[int, int], tokenizer: Tokenizer) -> str:
    """Return `name | description | body`, description and body cut at so many tokens each."""
    description, body = (
        first_tokens(text, most, tokenizer)
        for text, most in zip((skill.description, skill.body), limits, strict=True)
    )
    return f"{skill.name} | {description} | {body}"


def first_tokens(text: str, most: int, tokenizer: Tokenizer) -> str:
    """Return the beginning of a text of at most so many tokens, unchanged where it is no longer."""
    offsets = tokenizer.offsets(text)
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


class RetrieveStage:
    """Keeps the `k` skills whose whole text is nearest to the task by cosine.

    `vectors` has a unit vector of each skill's `flat_text`, shape `(n, d)`; `encoder` makes the task's.
    """

    name = "retrieve"

    def __init__(self, vectors: Vectors, encoder: Encoder, k: int = RETRIEVED) -> None:
        self._vectors, self._encoder, self.k = vectors, encoder, k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return the positions of the nearest skills, nearest first; equal cosines by position."""
        rows = np.asarray(among)
        cosines = self._vectors[rows] @ self._encoder.encode([task])[0]
        return [int(i) for i in rows[np.argsort(-cosines, kind="stable")[: self.k]]]


class FlatRerankStage:
    """Ranks candidates as a scorer of pairs does, each read in its flat form, and keeps `k`.

    `tokenizer` is the scorer's own, which cuts the skill; `limits` are the tokens of description and body.
    """

    name = "rerank"

    def __init__(
        self,
        skills: Sequence[Skill],
        scorer: PairScorer,
        tokenizer: Tokenizer,
        *,
        k: int = RETRIEVED,
        limits: tuple[int, int] = RERANKED,
    ) -> None:
        self._skills, self._scorer, self._tokenizer = skills, scorer, tokenizer
        self.k, self._limits = k, limits

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return candidates, best first; equal scores as they stood."""
        texts = [flat_text(self._skills[i], self._limits, self._tokenizer) for i in among]
        order = np.argsort(-self._scorer.score(task, texts), kind="stable")
        return [among[i] for i in order[: self.k].tolist()]
