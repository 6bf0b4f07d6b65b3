from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from flows.cli.printing.measures import show
from flows.commands.routing.settings import SWEEPS
from storage.schemas import Qrel
from tasks.evaluate.measures.papers import papers
from tasks.evaluate.routing.bench import RoutingAnswer, answer_negatives, measure_method, whole
from tasks.evaluate.routing.data import RoutingBench, RoutingQuery
from tasks.evaluate.routing.measures import MEASURES
from tasks.evaluate.routing.report import beside_papers, routing_markdown, terminal_blocks
from tasks.evaluate.routing.summary import contest, summarise_method, summarise_rejection

BENCH = RoutingBench(
    [RoutingQuery("t", "tea", repo="tea/shop"), RoutingQuery("b", "bread", repo="bread/shop")],
    [Qrel("t", "tea/shop/brew", 1), Qrel("b", "bread/shop/bake", 1)],
    negatives=[RoutingQuery("n", "swim", repo="tea/shop", not_doc_id="tea/shop/brew")],
)
SURE = {
    "tea": RoutingAnswer(["tea/shop/brew"], 9.0, 0.9),
    "bread": RoutingAnswer(["bread/shop/bake"], 8.0, 0.8),
    "swim": RoutingAnswer(["tea/shop/brew"], 1.0, 0.2),
}
PLAIN = {task: RoutingAnswer(["bread/shop/bake", "tea/shop/brew"]) for task in SURE}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    methods, frames = [], []
    for name, answers in (("plain", PLAIN), ("sure", SURE)):
        method = whole(lambda task, _k, answers=answers: answers[task])  # type: ignore[misc]
        frames.append(measure_method(BENCH, name, method))
        rejection = summarise_rejection(frames[-1], answer_negatives(BENCH, name, method))
        methods.append({**summarise_method(frames[-1]), "rejection": rejection})
    contests = contest(pl.concat(frames), "plain")
    return {"pool": "repository", "skills": 2, "methods": methods, "contests": contests, "scenario": []}


def test_the_report_says_what_the_pool_is_and_what_intervals_are_over(found: dict[str, Any]) -> None:
    text = routing_markdown(found)
    assert "2 tasks over 2 skills (those of a task's repository alone)" in text
    assert "95 % bootstrap intervals over repositories." in text
    assert "| sure | repository: tea/shop | 1 | 1.000 [1.00, 1.00] |" in text


def test_only_numbers_that_methods_give_stand_in_the_tables_of_rejection(found: dict[str, Any]) -> None:
    text = routing_markdown(found)
    assert "| sure | score | all | 2 | 1 | 1.000 [1.00, 1.00] | 0.000 [0.00, 0.00] | 1.000 |  |" in text
    assert "| sure | fit | all | 2 | 1 | 1.000 [1.00, 1.00] | 0.000 [0.00, 0.00] | 1.000 | 0.167 |" in text
    assert "| sure | score | tea/shop | 1 | 1 | 1.000 [1.00, 1.00] |" in text
    assert "| sure | fit | 0.200 | 1 | 0.200 | 0.000 |" in text
    assert "| plain | score |" not in text


def test_a_person_sees_which_number_of_a_method_was_measured(
    found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    show(terminal_blocks({"pools": [found], "llm": None, "report": ["tables/routing.md"]}))
    printed = capsys.readouterr().out
    assert "sure: fit" in printed
    assert "plain: fit" not in printed
    assert "written: tables/routing.md" in printed
    assert "against plain, task by task; p by Holm" in printed


VARIANTS = {name for names in SWEEPS.values() for name in names}


@pytest.mark.parametrize("method", sorted(papers("routing")))
def test_what_a_paper_measured_is_a_variant_of_a_sweep(method: str) -> None:
    figures = dict(papers("routing")[method])
    assert figures.pop("table").startswith(("SkillFlow, table", "SkillRouter, table"))
    assert method in VARIANTS
    assert figures.keys() <= set(MEASURES)
    assert all(0 < value < 1 for value in figures.values())


def test_every_sweep_whose_table_gives_values_has_some() -> None:
    without = {sweep for sweep, names in SWEEPS.items() if not papers("routing").keys() & set(names)}
    assert without == {"skillflow-number-of-queries"}  # a figure of relative changes


def test_a_method_is_shown_beside_its_paper_and_others_are_not() -> None:
    rows = [{"method": "default", "hit@1": 0.5}, {"method": "skillrouter:candidates=50", "hit@1": 0.5}]
    assert list(beside_papers(rows)) == [
        {
            "method": "skillrouter:candidates=50",
            "measure": "hit@1",
            "here": 0.5,
            "paper": 0.72,
            "where": "SkillRouter, table 12",
        }
    ]
