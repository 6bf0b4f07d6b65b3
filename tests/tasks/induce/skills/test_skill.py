"""Actions of a skill as data, and what they may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.skills.actions import (
    Arg,
    Body,
    Const,
    Find,
    Result,
    SkillAction,
    Source,
    body_of,
    checked,
    const,
    is_name,
    told,
)
from tasks.induce.skills.skill import InducedSkill, actions_of, skill_id_of
from tasks.induce.skills.wording import MOST_WORDS, described, page_of, summed_up
from tests.support.induce.runs import BEDS, FORM, JSON, any_body, call, page, press

BODY: Body = (
    press("link", "beds"),
    SkillAction("fill", "textbox", "", (("element", Find(1)), ("text", Const(const("loam"))))),
    call("water", bed=Result(0, ("beds", 0, "@key")), litres=Arg("litres")),
)


def test_actions_are_told_as_rows_with_a_source_of_each_argument() -> None:
    assert told(BODY) == [
        {"name": "click", "role": "link", "target": "beds", "args": {"element": {"arg": "element"}}},
        {
            "name": "fill",
            "role": "textbox",
            "target": "",
            "args": {"element": {"find": 1}, "text": {"const": "loam"}},
        },
        {
            "name": "water",
            "role": None,
            "target": None,
            "args": {"bed": {"result": 0, "path": ["beds", 0, "@key"]}, "litres": {"arg": "litres"}},
        },
    ]


@given(any_body(least=1, most=7))
def test_rows_give_back_the_actions_that_they_were_told_of(body: Body) -> None:
    assert body_of(json.loads(json.dumps(told(body)))) == body


@given(JSON)
def test_a_constant_gives_back_its_value(value: object) -> None:
    assert Const(const(value)).value == value
    assert const(Const(const(value)).value) == const(value)


def test_constants_of_equal_values_are_equal() -> None:
    assert const({"b": 1, "a": 2}) == const({"a": 2, "b": 1})
    assert const((1, [2])) == const([1, (2,)])
    assert const({2: "x", 10: "y"}) == const({"10": "y", "2": "x"})
    assert const(1) != const(True)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"x", {1, 2}, 1j, ..., {(1, 2): 3}, 10**5000], ids=range(8)
)
def test_what_json_cannot_say_is_no_constant(value: object) -> None:
    with pytest.raises(WrongInput):
        const(value)


def row(**changed: object) -> dict[str, object]:
    return {"name": "water", "role": None, "target": None, "args": {}} | changed


@pytest.mark.parametrize(
    "wrong",
    [
        "water",
        None,
        {},
        row(name=None),
        row(name="import"),
        row(name="two words"),
        row(role="link"),
        row(target="beds"),
        row(role=1, target="beds"),
        row(role=["link"], target="beds"),
        row(args=None),
        row(args=[]),
        row(args={"bed": None}),
        row(args={"bed": {}}),
        row(args={"bed": "arg"}),
        row(args={"": {"arg": "x"}}),
        row(args={"class": {"arg": "x"}}),
        row(args={"bed": {"arg": "two words"}}),
        row(args={"bed": {"arg": None}}),
        row(args={"bed": {"const": float("nan")}}),
        row(args={"bed": {"result": 0, "path": []}}),  # its own result
        row(args={"bed": {"result": -1, "path": []}}),
        row(args={"bed": {"result": "0", "path": []}}),
        row(args={"bed": {"result": 0}}),
        row(args={"element": {"find": 0}}),  # no role says what is to be found
        row(role="link", target="x", args={"text": {"find": 0}}),
        row(role="link", target="x", args={"element": {"find": -1}}),
        row(role="link", target="x", args={"element": {"find": True}}),
    ],
)
def test_rows_that_are_no_actions_are_refused(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(WrongInput):
        body_of([wrong])


@pytest.mark.parametrize("path", [("a", None), (1.5,), (-1,), (True,), (("a",),)])
def test_a_path_is_of_texts_and_places(path: Any) -> None:  # noqa: ANN401
    with pytest.raises(WrongInput):
        checked((call("look"), call("water", bed=Result(0, path))))


def test_an_argument_is_given_once() -> None:
    with pytest.raises(WrongInput):
        checked((SkillAction("water", None, None, (("bed", Arg("a")), ("bed", Arg("b")))),))


@given(
    st.recursive(
        JSON, lambda inner: st.builds(lambda args: row(args=args), inner) | st.lists(inner, max_size=2)
    )
)
def test_anything_else_is_refused_or_gives_actions(rows: Any) -> None:  # noqa: ANN401
    try:
        body = body_of(rows)
    except WrongInput:
        return
    assert body_of(told(body)) == body


def test_names_are_those_that_the_parser_gives_back() -> None:
    said = ["water", "hold_berth2", "match", "type", "größe", "水"]
    assert [name for name in said if not is_name(name)] == []
    assert not any(map(is_name, ["", "2a", "a b", "None", "def", "__debug__", "ﬁnd", None, 3]))


def skill(source: Source) -> InducedSkill:
    body = (call("find_berth", boat=Arg("boat")), call("hold_berth", code=source))
    return InducedSkill(
        skill_id_of("harbour", body), "harbour", "moor", "Moor a boat.", body, ("a", "b"),
        (("h1", 0), ("h2", 3)),
    )  # fmt: skip


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
