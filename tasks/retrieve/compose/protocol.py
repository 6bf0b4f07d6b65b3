"""The protocol of a reranker of steps: it puts the candidates of one step in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

RERANKED = 10  # candidates of a step that a reranker is shown (SkillWeaver, appendix K)


class StepReranker(Protocol):
    """Orders the candidates of a step with the whole task in view."""

    def order(self, task: str, step: str, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the places of all candidates, the best first.

        Args:
            task: What was asked for.
            step: The text of the step.
            rows: At most `RERANKED` rows of the index, as `Searcher.search` orders them.
        """
