from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.answers import Answers
from storage.errors import WrongInput
from tasks.evaluate.routing.agents import (
    COVERAGES,
    SKILLSBENCH,
    Expected,
    PassRates,
    measured_agent,
    read_agents,
    read_expectations,
    scenario,
)
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.scripted import works

OVEN = Skill("home/oven", "oven", "heats up", "Heat the oven, then wait until it is hot.")
HIVE = Skill("home/hive", "hive", "houses bees", "Open it on a warm day.")
CASES = [
    Expected("Bake bread", OVEN, ("heat the oven", "wait", "sing", "dance")),
    Expected("Get honey", HIVE, ("open it",)),
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


SHARE = st.floats(0, 1)
PAPER = {"method": "primary", "hit@1": 0.740, "recall@10": 0.704, "fc@10": 0.520}


def test_the_papers_estimates_come_out_of_its_coverages() -> None:
    (found,) = scenario([PAPER], read_agents(SKILLSBENCH))
    assert [round(100 * found["mean"][m], 1) for m in COVERAGES] == [36.3, 35.8, 32.8]
    opus = next(a for a in found["agents"] if a["agent"] == "Claude Code (Opus 4.5)")
    assert [round(100 * opus[m], 1) for m in COVERAGES] == [39.2, 38.4, 34.1]


@given(SHARE, SHARE, SHARE)
def test_an_agent_passes_between_its_rates_without_and_with_skills(c: float, low: float, high: float) -> None:
    agent = PassRates("any", min(low, high), max(low, high))
    (found,) = scenario([{"method": "m", **dict.fromkeys(COVERAGES, c)}], [agent])
    assert agent.without - 1e-9 <= found["mean"]["hit@1"] <= agent.with_skills + 1e-9


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


def test_a_file_without_agents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("", "utf-8")
    with pytest.raises(WrongInput, match="holds no agent"):
        read_agents(str(tmp_path / "none.jsonl"))
