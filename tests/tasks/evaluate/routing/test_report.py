from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.cli.printing.measures import show
from flows.commands.routing.settings import SWEEPS
from storage.answers import Answers
from storage.errors import WrongInput
from storage.schemas import Qrel
from tasks.evaluate.measures.tables import papers
from tasks.evaluate.routing.agents import (
    COVERAGES,
    SKILLSBENCH,
    Expected,
    measured_agent,
    read_agents,
    read_expectations,
    scenario,
)
from tasks.evaluate.routing.attention import MOST, Shares, attention_by_field, pairs_of
from tasks.evaluate.routing.bench import RoutingAnswer, answer_negatives, measure_method, whole
from tasks.evaluate.routing.data import SKILLS, RoutingBench, RoutingQuery
from tasks.evaluate.routing.measures import MEASURES, contest, summarise_method, summarise_rejection
from tasks.evaluate.routing.report import attention_markdown, beside_papers, routing_markdown, terminal_blocks
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import works
from tests.support.models.word_models import WordTokenizer

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


BAKING = Skill("home/oven", "oven", "heats up", "Heat the oven, then wait until it is hot.")
KEEPING = Skill("home/hive", "hive", "houses bees", "Open it on a warm day.")
CASES = [
    Expected("Bake bread", BAKING, ("heat the oven", "wait", "sing", "dance")),
    Expected("Get honey", KEEPING, ("open it",)),
]


def test_an_agent_meets_the_mean_share_of_what_is_expected_of_it(answers: Answers) -> None:
    steps: list[tuple[int, int]] = []
    with LlmServer(say=works) as server:
        llm = llm_of(server.url, answers)
        found = measured_agent(llm, CASES, lambda *done: steps.append(done))
    assert (found.without, found.with_skills) == (0.0, 0.75)
    assert (found.name, len(steps)) == ("small-model, 2 tasks", 2)
    asked = [one.fragments for one in server.asked]
    assert len(asked) == 8
    assert [{"request": "Bake bread"}] in asked


def test_a_task_whose_judgement_failed_counts_in_neither_share(answers: Answers) -> None:
    def fails(asked: Asked) -> str:
        first = asked.fragments[0]
        return "well" if first["request"] == "Bake bread" and "answer" in first else works(asked)

    with LlmServer(say=fails) as server:
        llm = llm_of(server.url, answers)
        found = measured_agent(llm, CASES)
        assert (found.without, found.with_skills, found.name) == (0.0, 1.0, "small-model, 1 tasks")
        assert llm.fallbacks == {"agent-judge-1: malformed": 2}  # without a skill, and with it
        with pytest.raises(WrongInput, match="no answer of the agent could be judged"):
            measured_agent(llm, CASES[:1])


def test_what_answers_must_do_is_read_by_task(tmp_path: Path) -> None:
    lines = [
        {"query_id": "a", "assertions": ["one", "two"], "expected_output": "both"},
        {"query_id": "b", "assertions": [], "expected_output": "this"},
        {"query_id": "c"},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    assert read_expectations(path) == {"a": ("one", "two"), "b": ("this",)}
    path.write_text('{"query_id": "a", "assertions": "one"}\n', "utf-8")
    with pytest.raises(WrongInput, match=r"answers.jsonl:1: `assertions` is no list of texts"):
        read_expectations(path)


PRIMARY = {"method": "primary", "hit@1": 0.740, "recall@10": 0.704, "fc@10": 0.520}


def test_the_papers_estimates_come_out_of_its_coverages() -> None:
    (found,) = scenario([PRIMARY], read_agents(SKILLSBENCH))
    assert [round(100 * found["mean"][m], 1) for m in COVERAGES] == [36.3, 35.8, 32.8]
    opus = next(a for a in found["agents"] if a["agent"] == "Claude Code (Opus 4.5)")
    assert [round(100 * opus[m], 1) for m in COVERAGES] == [39.2, 38.4, 34.1]


@pytest.mark.parametrize(
    "line",
    [
        '{"agent": "a", "without": 0.2}',
        '{"agent": "a", "without": 20, "with": 40}',
        '{"without": 0, "with": 1}',
    ],
)
def test_an_agent_without_its_rates_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl"
    path.write_text(line + "\n", "utf-8")
    with pytest.raises(WrongInput, match=r"agents.jsonl"):
        read_agents(str(path))
    path.write_text("", "utf-8")
    with pytest.raises(WrongInput, match="holds no agent"):
        read_agents(str(path))
