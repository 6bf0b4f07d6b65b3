"""SkillRouter's two stages, retrieve and rerank, over the text `name | description | body` of a skill."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.models.with_torch.cross_encoder import PairScorer
from tasks.retrieve.routing.skill import Skill

RETRIEVED = 20  # candidates for the reranker: more than that do harm (SkillRouter, table 12 of the appendix)
# Tokens of the description and of the body that each stage reads (SkillRouter, appendix C).
ENCODED = (300, 2500)
RERANKED = (500, 3000)


def flat_text(skill: Skill, limits: tuple[int, int], tokenizer: Tokenizer) -> str:
    """Return `name | description | body`; description and body are cut to so many tokens."""
    description = first_tokens(skill.description, limits[0], tokenizer)
    return f"{skill.name} | {description} | {first_tokens(skill.body, limits[1], tokenizer)}"


def first_tokens(text: str, most: int, tokenizer: Tokenizer) -> str:
    """Return the beginning of a text with at most so many tokens."""
    offsets = tokenizer.offsets(text)
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


class RetrieveStage:
    """Keeps the `k` skills whose `flat_text` is nearest to the task by cosine.

    `vectors`, shape `(n, d)`, are those of the flat texts. The encoder adds its instruction to the task.
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
    """Keeps the `k` skills whose `flat_text`, cut to `limits`, a scorer of pairs puts first.

    The tokenizer is that of the scorer.
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
        """Return candidates, best first; equal scores in their order."""
        texts = [flat_text(self._skills[i], self._limits, self._tokenizer) for i in among]
        order = np.argsort(-self._scorer.score(task, texts), kind="stable")
        return [among[i] for i in order[: self.k].tolist()]
