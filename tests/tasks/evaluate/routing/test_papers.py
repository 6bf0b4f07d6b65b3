from __future__ import annotations

import pytest

from flows.commands.routing.variants import SWEEPS
from tasks.evaluate.routing.papers import beside_papers, papers

MEASURES = {"hit@1", "mrr@10", "ndcg@10", "fc@10", "recall@10", "recall@50", "recall@100", "recall@1000"}
VARIANTS = {name for names in SWEEPS.values() for name in names}


@pytest.mark.parametrize("method", sorted(papers()))
def test_what_a_paper_measured_is_a_variant_of_a_sweep(method: str) -> None:
    figures = dict(papers()[method])
    assert figures.pop("table").startswith(("SkillFlow, table", "SkillRouter, table"))
    assert method in VARIANTS
    assert figures.keys() <= MEASURES
    assert all(0 < value < 1 for value in figures.values())


def test_every_sweep_whose_table_gives_values_has_some() -> None:
    without = {sweep for sweep, names in SWEEPS.items() if not papers().keys() & set(names)}
    assert without == {"skillflow-number-of-queries"}  # a figure of relative changes


def test_a_method_is_shown_beside_its_paper_and_others_are_not() -> None:
    rows = [{"method": "default", "hit@1": 0.5}, {"method": "skillrouter:candidates=50", "hit@1": 0.5}]
    assert list(beside_papers(rows)) == [
        ["skillrouter:candidates=50", "hit@1", "0.500", "0.720", "SkillRouter, table 12"]
    ]
