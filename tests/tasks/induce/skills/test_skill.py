"""Induced skills: what is told of them, and in which words."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.induce.skills.actions import Arg, Body, Const, Find, Result, SkillAction, Source, body_of, const
from tasks.induce.skills.skill import InducedSkill, actions_of, skill_id_of
from tasks.induce.skills.wording import MOST_WORDS, described, page_of, summed_up
from tests.support.induce.runs import BEDS, FORM, any_body, call, page, press


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


BERTHS = "find_berth returned: " + json.dumps({"berth": {"code": "B7"}, "fee": 40})


def test_a_skill_is_described_by_what_it_does_and_where() -> None:
    body = (press("link", "beds"), SkillAction("fill", "textbox", "name", (("element", Find(0)),)))
    said = described(body, "on the Green beds page")
    assert said == "Click the beds link, then fill in the name textbox (on the Green beds page)."


def test_a_tools_arguments_are_said_by_where_they_come_from() -> None:
    body = (
        call("find_berth", boat=Arg("boat"), long_stay=Const(const(True))),
        call("hold_berth", berth_code=Result(0, ())),
    )
    assert described(body, "") == (
        "Find berth by boat and long stay, then hold berth with the berth code found."
    )


def test_what_is_left_open_or_has_no_name_is_said_so() -> None:
    open_one = SkillAction("click", None, None, (("element", Arg("element")),))
    assert described((open_one, press("button", "")), "") == (
        "Click what the task names, then click the unnamed button."
    )


@settings(deadline=None)
@given(any_body(least=1), st.text(max_size=10))
def test_any_skill_has_a_description(body: Body, where: str) -> None:
    assert described(body, where).endswith(".")


def test_a_state_is_called_by_its_page() -> None:
    seen = f'[1] heading "Beds"\n{BEDS}'
    assert page_of(seen, "http://green.example/#/beds/7?q=1", "Green") == "on the Green beds page Beds"
    assert page_of(BERTHS, "", "") == "after find berth"
    assert page_of("user: moor the Petrel", "", "") == "after a message of the user"


def test_a_page_is_summed_up_by_what_one_can_do_there() -> None:
    said = summed_up(FORM, "http://green.example/beds", "Green")
    assert said == (
        "on the Green beds page: click the save button, click the cancel button, fill in the name textbox,"
        " select an option of the soil combobox"
    )


def test_a_tools_answer_is_summed_up_by_its_fields_and_a_message_by_its_words() -> None:
    assert summed_up(BERTHS) == "after find berth: berth, code, fee"
    assert summed_up("user: moor  the Petrel") == "after a message of the user: user: moor the Petrel"


def test_elements_without_a_name_are_not_said() -> None:
    assert (
        summed_up(page("button ", "textbox Name"), "", "Green")
        == "on the Green page: fill in the name textbox"
    )


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_any_state_is_summed_up_in_few_words(observation: str, url: str, title: str) -> None:
    for seen in (
        observation,
        f"{observation}\n" * 400,
        f'[1] link "{observation}"\n{FORM}',
        f"x returned: {observation}",
    ):
        assert len(summed_up(seen, url, title).split()) <= MOST_WORDS
        assert summed_up(seen, url, title) == summed_up(seen, url, title)


def test_a_huge_page_is_summed_up_from_its_beginning() -> None:
    seen = page(*(f"link Bed number {n} of the garden" for n in range(20_000)))
    assert len(summed_up(seen).split()) == MOST_WORDS
