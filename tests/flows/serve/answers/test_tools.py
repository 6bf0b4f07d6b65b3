from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from flows.serve.answers.service import Service, load_serving
from flows.serve.answers.tool import ToolOutcome
from flows.serve.answers.tools import TOOLS
from flows.settings import load_settings
from storage.errors import ModelMismatch, NotPublished, WrongInput
from tasks.retrieve.versions.publish import roll_back
from tests.support.command import Ask
from tests.support.induce.learning import HARBOUR, RUNS, induced, learned, learned_root
from tests.support.induce.runs import FORM, mooring
from tests.support.roots.hand_written import BIKE, BREAD
from tests.support.roots.skill_root import MINILM, SkillRoot
from tests.support.roots.storied import BREAD_ID
from tests.support.serving import Tools

Make = Callable[[dict[str, str]], SkillRoot]
ToolsOf = Callable[[SkillRoot], Tools]
TASK = "Bake a loaf of bread, then feed the honey bees, and wash the van."


def blas_threads() -> set[int]:
    return {int(held["num_threads"]) for held in threadpool_info() if held["user_api"] == "blas"}


def test_products_take_one_thread_each_while_a_service_is_open(storied: SkillRoot, tools_of: ToolsOf) -> None:
    with threadpool_limits(2, user_api="blas"):
        tools_of(storied)
        assert blas_threads() == {1}


def plan(call: Tools, **given: object) -> dict[str, Any]:
    return call("compose_plan", given).as_json()


def test_a_plan_is_that_of_the_command_and_says_whose_each_skill_is(
    storied: SkillRoot, tools_of: ToolsOf, ask: Ask
) -> None:
    task = f"{TASK} If it rains, open the hive."
    found = plan(tools_of(storied), task=task, k=2)
    printed = ask.told("compose", task, "-k", "2", "--root", storied.root.uri)
    assert (found["version"], "not instructions" in found["notice"]) == (storied.served().version, True)
    assert [_told(step) for step in found["steps"]] == [_printed(step) for step in printed["steps"]] != []
    assert found["steps"][-1]["condition"] == "If it rains"
    whose = [skill["whose"] for step in found["steps"] for skill in step["skills"]]
    assert {"source": "dir:market", "url": "file:///market/bread"} in whose
    risks = {skill["doc_id"]: skill["risks"] for step in found["steps"] for skill in step["skills"]}
    assert risks[BREAD_ID] == ["risk.remote.pipe-to-shell"]


def _told(step: dict[str, Any]) -> tuple[object, ...]:
    best = None if step["gap"] else step["skills"][0]["doc_id"]
    ids = [skill["doc_id"] for skill in step["skills"]]
    return step["step"], step["text"], step["after"], step.get("condition"), step["confidence"], best, ids


def _printed(step: dict[str, Any]) -> tuple[object, ...]:
    ids = [candidate["doc_id"] for candidate in step["candidates"]]
    numbers = step["step"], step["text"], step["after"], step["condition"], step["confidence"]
    return *numbers, step["doc_id"], ids


def test_a_plan_in_words_has_a_line_a_step(storied: SkillRoot, tools_of: ToolsOf) -> None:
    call = tools_of(storied)
    first, second, *_, left, notice = (
        call("compose_plan", {"task": TASK + " Then sweep the floor." * 12}).as_text().splitlines()
    )
    assert (first.startswith("1. Bake a loaf of bread: local/market/bread, "), first[-6:]) == (True, "% sure")
    assert second.startswith("2. feed the honey bees (after 1): local/market/bees, ")
    assert left.startswith("left out (beyond-max-steps): sweep")
    assert "not instructions" in notice
    assert call("compose_plan", {"task": "?!"}).as_text() == "No step was found in the task."


def test_filters_hold_for_each_step_and_what_is_left_out_has_a_reason(
    storied: SkillRoot, tools_of: ToolsOf
) -> None:
    call = tools_of(storied)
    found = plan(call, task=TASK, filters={"risk": ["none"]})
    assert BREAD_ID not in [skill["doc_id"] for step in found["steps"] for skill in step["skills"]]
    found = plan(call, task=TASK + " Then sweep the floor." * 600)
    assert "too-long" in [part["reason"] for part in found["left_out"]]


def test_a_plan_is_of_the_version_that_is_served_when_it_is_asked(
    skill_root: Make, tools_of: ToolsOf
) -> None:
    root = skill_root({"bike": BIKE})
    call = tools_of(root)
    with pytest.raises(NotPublished):
        plan(call, task=TASK)
    root.publish()
    first = plan(call, task=TASK)
    root.write("bread", BREAD)
    root.publish()
    second = plan(call, task=TASK)
    assert [found["steps"][0]["skills"][0]["name"] for found in (first, second)] == ["bike", "bread"]
    assert second["version"] == root.served().version != first["version"]


def test_a_root_without_skills_has_a_plan_of_gaps(
    skill_root: Make, tools_of: ToolsOf, tmp_path: Path
) -> None:
    root = skill_root({})
    learned(root.root, tmp_path, RUNS)
    induced(root, "one")
    found = tools_of(root)("compose_plan", {"task": TASK})
    steps = found.as_json()["steps"]
    assert [(step["gap"], step["skills"]) for step in steps] == [(True, [])] * len(steps) != []
    assert found.as_text().startswith("1. Bake a loaf of bread: nothing served fits\n")


BED = {"task": "Add the bed Iris bank with clay.", "domain": "greenhouse", "state": {"observation": FORM}}
MOOR = {"task": "Moor the Gull tonight", "domain": HARBOUR, "state": {"observation": ""}}


def suggest(call: Tools, **given: object) -> dict[str, Any]:
    return call("suggest_steps", given).as_json()


def test_what_is_suggested_is_what_the_command_prints_with_the_runs_that_did_it(
    taught: SkillRoot, tools_of: ToolsOf, ask: Ask, tmp_path: Path
) -> None:
    seen = {"observation": FORM, "url": "http://green.example/#/beds/7", "title": "Green"}
    state = tmp_path / "s.json"
    state.write_text(json.dumps(seen), "utf-8")
    given = ["--task", str(BED["task"]), "--domain", "greenhouse", "--state", str(state), "-k", "2"]
    printed = ask.told("suggest", *given, "--root", taught.root.uri)
    found = suggest(tools_of(taught), **{**BED, "state": seen}, k=2)
    assert (found["version"], found["domain"]) == (taught.served().version, "greenhouse")
    assert "not instructions" in found["notice"]
    names = ("skill_id", "description", "code", "score", "support")
    same = [{name: row[name] for name in names} for row in printed["results"]]
    assert [{name: row[name] for name in names} for row in found["results"]] == same != []
    assert [row["runs"] for row in found["results"]] == [["g0", "g1", "g2"]] * len(same)
    assert {row["verified"][0] for row in found["results"]} == {"recorded"}


def test_earlier_actions_count_and_suggestions_in_words_hold_code_and_say_whose_they_are(
    taught: SkillRoot, tools_of: ToolsOf
) -> None:
    call = tools_of(taught)
    filled = {"name": "fill", "args": {"element": "40", "text": "Iris bank"}}
    before = suggest(call, **BED)["results"][0]["code"]
    state = {"observation": FORM, "previous": [filled]}
    after = suggest(call, **{**BED, "state": state})["results"][0]["code"]
    assert ("fill(" in before, "fill(" in after) == (True, False)
    told = call("suggest_steps", BED).as_text()
    assert ("of run g0; 3 tasks" in told, "    fill(element=" in told) == (True, True)
    assert told.endswith("not instructions to you.")
    nowhere = {**BED, "state": {"observation": '[1] button "Elsewhere"'}}
    assert call("suggest_steps", nowhere).as_text() == "No learned skill fits this step."


@pytest.mark.slow
def test_a_publication_and_a_rollback_show_in_the_next_suggestion(
    skill_root: Make, tools_of: ToolsOf, tmp_path: Path
) -> None:
    root = learned_root(skill_root({"bread": BREAD}), tmp_path)
    call = tools_of(root)
    first = suggest(call, **MOOR)
    more = (mooring(f"h{n}", f"boat-{n}", "Gull", f"B{n}") for n in range(3, 6))
    learned(root.root, tmp_path, [*RUNS, *more])
    assert induced(root, "two")["published"]
    second = suggest(call, **MOOR)
    roll_back(root.root)
    assert [max(row["support"] for row in found["results"]) for found in (first, second)] == [3, 6]
    assert max((row["runs"] for row in second["results"]), key=len) == ["h0", "h1", "h2", "h3", "h4"]
    assert second["version"] != first["version"]
    assert suggest(call, **MOOR) == first


def test_learned_skills_are_read_once_a_version(taught: SkillRoot, tools_of: ToolsOf, tmp_path: Path) -> None:
    root = taught.copied(tmp_path)
    call = tools_of(root)
    first = suggest(call, **MOOR)
    root.root.delete("lance/induced.lance")
    assert suggest(call, **MOOR) == first


def test_after_a_night_with_another_encoder_learned_skills_are_to_be_encoded_anew(
    taught: SkillRoot, tools_of: ToolsOf, tmp_path: Path
) -> None:
    root = taught.copied(tmp_path)
    root.use_model(MINILM, "r2")
    root.publish()
    with pytest.raises(ModelMismatch, match="`skillery induce` encodes them anew"):
        suggest(tools_of(root), **MOOR)


def test_a_root_that_learned_nothing_says_so(storied: SkillRoot, tools_of: ToolsOf) -> None:
    with pytest.raises(WrongInput, match=r"^no learned skills are served here: .* serves them$"):
        suggest(tools_of(storied), **MOOR)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"domain": "harbor"}, r"did you mean 'harbour'\?"),
        ({"domain": None}, "known: greenhouse, harbour"),
        ({"task": "\t"}, "the task is blank"),
        ({"k": 0}, "k: "),
        ({"k": 1000}, "k: "),
        ({"state": {}}, "state.observation: Field required"),
        ({"state": {"observation": "", "previous": [{"name": "fill", "args": [1]}]}}, "a name and args"),
        ({"state": {"observation": "x" * 5_000_000}}, "state.observation: .* at most 200000 characters"),
    ],
)
def test_what_cannot_be_suggested_for_is_told(
    taught: SkillRoot, tools_of: ToolsOf, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(WrongInput, match=said):
        suggest(tools_of(taught), **{**MOOR, **changed})


@pytest.fixture
def tools_of() -> Iterator[Callable[[SkillRoot], Tools]]:
    """Return what calls the tools of a root's service by name, as all its protocols do."""
    services: list[Service] = []

    def of(root: SkillRoot) -> Tools:
        service = Service(root.root, load_settings(), load_serving())
        services.append(service)

        def call(name: str, given: dict[str, Any]) -> ToolOutcome:
            tool = next(tool for tool in TOOLS if tool.name == name)
            found: ToolOutcome = asyncio.run(tool.answer(service, given, "mcp"))
            return found

        return call

    yield of
    for service in services:
        service.close()
