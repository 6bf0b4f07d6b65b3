from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tasks.models.protocols import Vectors
from tasks.retrieve.routing.router import Router
from tasks.train.routing import DECISIVE, by_score, helps, reranked, routed
from tests.support.models.training_material import trades

SKILLS = trades()[:8]


class Words:
    """An encoder whose vectors count the words of the trades' tools."""

    tools = tuple(skill.body.split()[4] for skill in SKILLS)

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.array([[text.count(tool) for tool in self.tools] for text in texts], dtype=np.float32)
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1), np.float32)


def test_skills_are_ranked_by_scores_and_equal_ones_by_position() -> None:
    found = by_score(SKILLS, lambda _task: -(np.arange(8) // 2))("whatever", 3)
    assert found == [SKILLS[k].doc_id for k in (0, 1, 2)]


def test_a_reranker_puts_the_first_candidates_in_order_and_leaves_the_rest() -> None:
    router = Router.from_documents(SKILLS, Words())
    task = f"who needs the {SKILLS[5].body.split()[4]}"
    before = [one.doc_id for one in router.rank(task, 8, fold=False)]

    class Backwards:
        def score(self, _query: str, texts: Sequence[str]) -> np.ndarray:
            return np.arange(len(texts), dtype=np.float64)

    (answer,) = reranked(SKILLS, routed(router), Backwards(), lambda skill: skill.body, 3)(task, 8)
    assert answer.doc_ids == [*reversed(before[:3]), *before[3:]]


@pytest.mark.parametrize(("low", "expected"), [(0.01, True), (0.0, False), (-0.2, False)])
def test_a_method_helps_if_its_whole_interval_lies_above_the_baseline(low: float, expected: bool) -> None:
    contests = [
        {"method": "a", "measure": "hit@1", "low": 1.0},
        {"method": "a", "measure": DECISIVE, "low": low},
    ]
    assert helps(contests, "a") is expected
