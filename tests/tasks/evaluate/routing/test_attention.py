from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from storage.schemas import Qrel
from tasks.evaluate.routing.attention import MOST, Shares, attention_by_field, pairs_of
from tasks.evaluate.routing.data import SKILLS, RoutingQuery
from tasks.evaluate.routing.report import attention_markdown
from tasks.retrieve.routing.skill import Skill
from tests.support.models.word_models import WordTokenizer

OVEN = Skill("home/oven", "oven", "heats up", "wait until it is hot")
HIVE = Skill("home/hive", "hive", "houses bees", "open it on a warm day")


class Measuring(WordTokenizer):
    """Attends to a part by its characters, and in each layer less to all."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.seen: list[tuple[str, list[str]]] = []

    def attention(self, query: str, text: str, parts: Sequence[tuple[int, int]]) -> Shares:
        self.seen.append((query, [text[start:end] for start, end in parts]))
        lengths = np.array([end - start for start, end in parts], dtype=float)
        return np.outer(1 / np.arange(1, self.layers + 1), lengths)


def test_a_reranker_is_shown_the_fields_as_they_stand_in_its_text() -> None:
    reranker, steps = Measuring(4), []
    rows = attention_by_field(reranker, [("bake", OVEN), ("honey", HIVE)], (100, 3), lambda: steps.append(1))
    assert reranker.seen[0] == ("bake", ["oven", "heats up", "wait until it"])
    assert len(steps) == 2
    assert [row["layers"] for row in rows] == ["early", "middle", "late", "0", "1", "2", "3", "all"]
    shares = np.array([[row["name"], row["description"], row["body"]] for row in rows])
    assert shares.sum(axis=1) == pytest.approx(np.ones(8))
    expected = np.mean([[4 / 25, 8 / 25, 13 / 25], [4 / 25, 11 / 25, 10 / 25]], axis=0)
    assert shares[-1] == pytest.approx(expected)


def test_the_groups_of_28_layers_are_the_papers() -> None:
    class Deep(Measuring):
        def attention(self, query: str, text: str, parts: Sequence[tuple[int, int]]) -> Shares:
            super().attention(query, text, parts)
            at = np.arange(28.0)
            return np.stack([at, np.zeros(28), 28 - at], axis=1)

    found = attention_by_field(Deep(28), [("bake", OVEN)], (9, 9), lambda: None)
    rows = {row["layers"]: row for row in found}
    middles = {"early": 3, "middle": 13.5, "late": 24}
    assert {group: rows[group]["name"] * 28 for group in middles} == pytest.approx(middles)
    assert rows["all"]["paper"][2] == 0.917
    assert rows["0"]["paper"] is None
    lines = attention_markdown(list(rows.values())).splitlines()
    assert lines[4] == "| early | 10.7% | 0.0% | 89.3% | 2.3% | 0.3% | 97.3% |"
    assert lines[7] == "| 0 | 0.0% | 0.0% | 100.0% |  |  |  |"


def test_each_task_is_read_with_the_skill_that_serves_it_best() -> None:
    tasks = [RoutingQuery(f"t{n}", f"task {n}") for n in range(3 + MOST)]
    qrels = [
        Qrel("t0", "home/hive", 1), Qrel("t0", "home/oven", 3), Qrel("t1", "home/gone", 3),
        Qrel("t2", "home/oven", 0),
        *(Qrel(f"t{n}", "home/hive", 1) for n in range(3, 3 + MOST)),
    ]  # fmt: skip
    skills = pl.DataFrame([OVEN, HIVE], SKILLS, orient="row")
    pairs = pairs_of(tasks, qrels, skills)
    assert pairs[:2] == [("task 0", OVEN), ("task 3", HIVE)]
    assert len(pairs) == MOST
