"""SkillFlow's stages that rerank: a light cross-encoder, then one that reads whole skills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from storage.errors import WrongInput
from tasks.models.with_torch.cross_encoder import PairScorer
from tasks.retrieve.baselines.skillflow_dense import Aggregation, best_first
from tasks.retrieve.baselines.skillflow_queries import QueryWriter
from tasks.retrieve.routing.skill import Skill


@dataclass(frozen=True, slots=True)
class RerankSettings:
    """The settings of a reranker; one query is what SkillFlow found best (appendix A.5)."""

    k: int  # skills kept, at least 1
    queries: int = 1  # how many are generated, at least 1
    aggregation: Aggregation = "mean"  # how the scores of several queries become one
    rules: str | None = None  # the prompt for queries; None: the usual one

    def __post_init__(self) -> None:
        if min(self.k, self.queries) < 1:
            msg = f"rerank stage: k {self.k}, queries {self.queries}: at least 1 each"
            raise WrongInput(msg)


class RerankStage:
    """Keeps the skills that a scorer of pairs ranks first: SkillFlow, equations 2 to 5.

    Args:
        name: `shallow` or `deep`.
        skills: The corpus.
        scorer: Reads query and skill together; how much of it is the scorer's own setting.
        writer: Makes queries out of tasks.
        settings: How many are kept, and how queries are asked for.
    """

    def __init__(
        self,
        name: str,
        skills: Sequence[Skill],
        scorer: PairScorer,
        writer: QueryWriter,
        settings: RerankSettings,
    ) -> None:
        self.name, self._skills, self._scorer = name, skills, scorer
        self._writer, self._settings = writer, settings

    @property
    def k(self) -> int:
        """How many skills it keeps at most."""
        return self._settings.k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills that score best, best first; equal ones as they stood."""
        if not among:
            return []
        queries = self._writer.write(task, self._settings.queries, self._settings.rules)
        texts = [self._skills[i].text for i in among]
        scores = np.stack([self._scorer.score(query, texts) for query in queries], axis=1)
        order = best_first(scores, self._settings.aggregation)
        return [among[i] for i in order[: self._settings.k]]
