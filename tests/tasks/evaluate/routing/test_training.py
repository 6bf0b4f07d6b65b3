from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tasks.evaluate.routing.bench import RoutingMethod, whole
from tasks.evaluate.routing.training import held_out_bench, helps, measure_training, nearest, reranked, scored
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.router import Router
from tasks.retrieve.train.queries import TrainingQuery
from tests.support.models.training_material import trades

SKILLS = trades()[:8]
QUERIES = [TrainingQuery(s.doc_id, f"who needs the {s.body.split()[4]}", i, ()) for i, s in enumerate(SKILLS)]
BENCH = held_out_bench(QUERIES)


class Words:
    """An encoder whose vectors count the words of the trades' tools."""

    tools = tuple(skill.body.split()[4] for skill in SKILLS)

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.array([[text.count(tool) for tool in self.tools] for text in texts], dtype=np.float32)
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1), np.float32)


def always(order: Sequence[int]) -> RoutingMethod:
    return whole(lambda _task, k: [SKILLS[i].doc_id for i in order][:k])


def test_each_query_has_the_skill_that_it_was_made_from_as_its_only_relevant_one() -> None:
    assert [(q.query_id, q.doc_id, q.relevance) for q in BENCH.qrels] == [
        (s.doc_id, s.doc_id, 1) for s in SKILLS
    ]
    assert [task.text for task in BENCH.tasks] == [query.text for query in QUERIES]


def test_methods_are_measured_and_compared_with_the_first() -> None:
    vectors = Words().encode([skill.body for skill in SKILLS])

    found = measure_training(BENCH, {"blind": always(range(8)), "seeing": nearest(SKILLS, vectors, Words())})

    assert [row["method"] for row in found["methods"]] == ["blind", "seeing"]
    assert [row["hit@1"] for row in found["methods"]] == [1 / 8, 1.0]
    assert {(c["method"], c["baseline"]) for c in found["contests"]} == {("seeing", "blind")}
    assert helps(found["contests"], "seeing")


@pytest.mark.parametrize("order", [range(8), [*range(1, 8), 0]])
def test_what_is_no_better_does_not_help(order: Sequence[int]) -> None:
    found = measure_training(BENCH, {"one": always(range(8)), "other": always(order)})

    assert not helps(found["contests"], "other")


def test_a_scorer_ranks_by_the_weighted_sum_of_features() -> None:
    features = np.stack([np.arange(8.0), np.zeros(8)], axis=1)

    (answer,) = scored(SKILLS, lambda _task: features, np.array([-1.0, 5.0]))("whatever", 3)

    assert answer.doc_ids == [skill.doc_id for skill in SKILLS[:3]]


def test_a_reranker_puts_the_first_candidates_in_order_and_leaves_the_rest() -> None:
    router = Router.from_documents(SKILLS, Words())
    task = QUERIES[5].text
    before = [one.doc_id for one in router.rank(task, 8, fold=False)]

    class Backwards:
        def score(self, _query: str, texts: Sequence[str]) -> np.ndarray:
            return np.arange(len(texts), dtype=np.float64)

    (answer,) = reranked(SKILLS, router, Backwards(), lambda skill: skill.body, 3)(task, 8)

    assert answer.doc_ids == [*reversed(before[:3]), *before[3:]]
