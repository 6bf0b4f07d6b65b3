from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import WrongInput
from tasks.evaluate.routing.agent import Expected, measured_agent, read_expectations
from tasks.retrieve.routing.skill import Skill
from tests.support.llm.llm_asking import llm_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.llm.working_llm import works

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


def test_the_same_is_never_asked_twice(answers: Answers) -> None:
    with LlmServer(say=works) as server:
        first = measured_agent(llm_of(server.url, answers), CASES)
        again = measured_agent(llm_of(server.url, answers), CASES)

    assert (first, len(server.asked)) == (again, 8)


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
