"""SkillFlow's rerank stages: a light cross-encoder, then one that reads whole skills."""

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
    """The settings of a rerank stage; one query is what SkillFlow found best (appendix A.5).

    `k` skills are kept. `queries` are generated for a task by the prompt `rules`, None for the packaged one,
    and their scores are aggregated.

    Raises:
        WrongInput: A number is below 1.
    """

    k: int
    queries: int = 1
    aggregation: Aggregation = "mean"
    rules: str | None = None

    def __post_init__(self) -> None:
        if min(self.k, self.queries) < 1:
            msg = f"rerank stage: k {self.k}, queries {self.queries}: at least 1 each"
            raise WrongInput(msg)


class RerankStage:
    """Keeps the skills that a scorer of pairs puts first (SkillFlow, equations 2 to 5).

    `name` is `shallow` or `deep`. How much of a skill the scorer reads is its own setting.
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
        self._writer, self._settings, self.k = writer, settings, settings.k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills that score best, best first; equal ones in their order."""
        if not among:
            return []
        queries = self._writer.write(task, self._settings.queries, self._settings.rules)
        texts = [self._skills[i].text for i in among]
        scores = np.stack([self._scorer.score(query, texts) for query in queries], axis=1)
        order = best_first(scores, self._settings.aggregation)
        return [among[i] for i in order[: self.k]]
