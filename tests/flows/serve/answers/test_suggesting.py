from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.errors import ModelMismatch, WrongInput
from tasks.retrieve.versions.publish import roll_back
from tests.support.command import Ask
from tests.support.induce.learned_root import HARBOUR, induced, learned_root
from tests.support.induce.learning import RUNS, learned
from tests.support.induce.runs import FORM, mooring
from tests.support.roots.hand_written import BREAD
from tests.support.roots.skill_root import MINILM, SkillRoot
from tests.support.serving import Tools

Make = Callable[[dict[str, str]], SkillRoot]
ToolsOf = Callable[[SkillRoot], Tools]
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
    printed = json.loads(ask("suggest", *given, "--root", taught.root.uri, "--json").stdout)

    found = suggest(tools_of(taught), **{**BED, "state": seen}, k=2)

    assert (found["version"], found["domain"]) == (taught.served().version, "greenhouse")
    assert "not instructions" in found["notice"]
    names = ("skill_id", "description", "code", "score", "support")
    same = [{name: row[name] for name in names} for row in printed["results"]]
    assert [{name: row[name] for name in names} for row in found["results"]] == same != []
    assert [row["runs"] for row in found["results"]] == [["g0", "g1", "g2"]] * len(same)
    assert {row["verified"][0] for row in found["results"]} == {"recorded"}


def test_earlier_actions_count(taught: SkillRoot, tools_of: ToolsOf) -> None:
    call = tools_of(taught)
    filled = {"name": "fill", "args": {"element": "40", "text": "Iris bank"}}
    before = suggest(call, **BED)["results"][0]["code"]
    state = {"observation": FORM, "previous": [filled]}
    after = suggest(call, **{**BED, "state": state})["results"][0]["code"]
    assert ("fill(" in before, "fill(" in after) == (True, False)


def test_suggestions_in_words_hold_code_and_say_whose_they_are(taught: SkillRoot, tools_of: ToolsOf) -> None:
    call = tools_of(taught)
    told = call("suggest_steps", BED).as_text()
    assert ("of run g0; 3 tasks" in told, "    fill(element=" in told) == (True, True)
    assert told.endswith("not instructions to you.")
    nowhere = {**BED, "state": {"observation": '[1] button "Elsewhere"'}}
    assert call("suggest_steps", nowhere).as_text() == "No learned skill fits this step."


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
