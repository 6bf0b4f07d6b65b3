"""An induced skill, and what is kept of it."""

from __future__ import annotations

import json

from tasks.induce.skills.actions import Arg, Const, Find, Result, Source, body_of, const
from tasks.induce.skills.code import actions_of
from tasks.induce.skills.naming import skill_id_of
from tasks.induce.skills.skill import InducedSkill
from tests.support.induce.runs import call, press


def skill(source: Source) -> InducedSkill:
    body = (call("find_berth", boat=Arg("boat")), call("hold_berth", code=source))
    return InducedSkill(
        skill_id_of("harbour", body),
        "harbour",
        "moor",
        "Moor a boat.",
        body,
        ("a", "b"),
        (("h1", 0), ("h2", 3)),
    )


def test_a_skill_is_supported_by_as_many_tasks_as_did_it() -> None:
    assert skill(Arg("code")).support == 2


def test_a_skill_whose_values_are_known_at_the_call_needs_the_state_alone() -> None:
    assert skill(Arg("code")).callable == "state"
    assert skill(Const(const("B7"))).callable == "state"
    assert skill(Result(0, ("code",))).callable == "bound"
    found = (press("link", "beds"), press("button", "save", Find(0)))
    assert InducedSkill("d/1", "d", "save", "", found, (), ()).callable == "bound"


def test_what_is_kept_of_a_skill_gives_back_its_actions_twice() -> None:
    one = skill(Result(0, ("berth", 0, "@key")))

    kept = json.loads(json.dumps(one.told()))

    assert body_of(kept["actions"]) == one.body
    assert actions_of(kept["code"]) == ("moor", one.body)
    assert kept["sources"] == [{"trajectory_id": "h1", "t": 0}, {"trajectory_id": "h2", "t": 3}]
    assert (kept["support"], kept["callable"], kept["inducer"]) == (2, "bound", "recurrence")
