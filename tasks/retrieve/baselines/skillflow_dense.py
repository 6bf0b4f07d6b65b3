"""SkillFlow's dense stage, its first: the skills whose descriptions are nearest to any query of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from storage.errors import WrongInput
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.baselines.skillflow_queries import QueryWriter
from tasks.retrieve.baselines.stages import reciprocal_rank_fusion

Gathering = Literal["union", "rrf", "mean", "max"]
Aggregation = Literal["mean", "max", "rrf"]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DenseSettings:
    """The settings of the dense stage; the defaults are SkillFlow's (section 4.2, appendix A.4).

    Args:
        k: Number of skills kept.
        gathering: How the rankings of several queries are fused: `union` of the best `depth` skills of each
            query, by their largest cosine; `rrf`, `mean` or `max` over all skills.
        depth: Number of skills per query in a union.
        rules: The prompt for `queries` queries; None for the packaged one.

    Raises:
        WrongInput: A number is below 1.
    """

    k: int = 1000
    queries: int = 5
    gathering: Gathering = "union"
    depth: int = 200
    rules: str | None = None

    def __post_init__(self) -> None:
        if min(self.k, self.queries, self.depth) < 1:
            msg = f"dense stage: k {self.k}, queries {self.queries}, depth {self.depth}: at least 1 each"
            raise WrongInput(msg)


class DenseStage:
    """Keeps the skills that are nearest by cosine (SkillFlow, equation 1); `vectors` has shape `(n, d)`."""

    name = "dense"

    def __init__(
        self, vectors: Vectors, encoder: Encoder, writer: QueryWriter, settings: DenseSettings | None = None
    ) -> None:
        self._vectors, self._encoder, self._writer = vectors, encoder, writer
        self._settings = settings or DenseSettings()
        self.k = self._settings.k

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return the positions of the nearest skills, nearest first; equal cosines by position."""
        settings = self._settings
        queries = self._writer.write(task, settings.queries, settings.rules)
        rows = np.asarray(among)
        # All skills are compared without a copy of their vectors, which may take gigabytes.
        held = self._vectors if len(rows) == len(self._vectors) else self._vectors[rows]
        cosines = (held @ self._encoder.encode(queries).T).astype(np.float64)
        if len(queries) == 1 or settings.gathering != "union":
            order = best_first(cosines, "max" if settings.gathering == "union" else settings.gathering)
        else:
            order = _union(cosines, settings.depth)
        return [int(rows[i]) for i in order[: self.k]]


def best_first(scores: Matrix, aggregation: Aggregation) -> list[int]:
    """Return the rows of scores, shape `(n, queries)`, best first; equal ones in their order."""
    if aggregation == "rrf":
        # Ids of equal width, so that equal sums are ordered by row.
        width = len(str(len(scores)))
        ranked = ([f"{i:0{width}}" for i in _descending(column)] for column in scores.T)
        return [int(i) for i, _ in reciprocal_rank_fusion(list(ranked))]
    return _descending(scores.mean(axis=1) if aggregation == "mean" else scores.max(axis=1))


def _union(cosines: Matrix, depth: int) -> list[int]:
    taken = np.unique([_descending(column)[:depth] for column in cosines.T])
    return [int(i) for i in taken[_descending(cosines[taken].max(axis=1))]]


def _descending(scores: Matrix) -> list[int]:
    return [int(i) for i in np.argsort(-scores, kind="stable")]
