"""Names of skills and of what their callers give."""

from __future__ import annotations

import keyword

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.induce.skills.actions import Arg, Body, Const, Result, SkillAction, const, is_name
from tasks.induce.skills.naming import function_name, identifier, parameters, skill_id_of, with_names
from tests.support.induce.runs import any_body, call, press


def given_names(body: Body) -> list[str]:
    return [source.name for action in body for _, source in action.args if isinstance(source, Arg)]


def test_an_argument_is_called_by_what_its_action_is_on() -> None:
    fill = SkillAction("fill", "textbox", "name of the bed", (("element", Arg("e")), ("text", Arg("t"))))
    body = with_names((fill, press("button", "", Arg("e")), call("water", litres=Arg("x"))))

    assert given_names(body) == ["name_of_the_textbox", "name_of_the_text", "button", "litres"]


def test_arguments_that_would_be_called_alike_are_numbered() -> None:
    body = with_names((call("water", bed=Arg("x")), call("water", bed=Arg("x")), call("weed", bed=Arg("x"))))

    assert given_names(body) == ["bed", "bed_2", "bed_3"]


def test_a_number_does_not_meet_an_argument_that_has_that_name() -> None:
    twice = (call("water", bed=Arg("x")), call("water", bed=Arg("x")), call("weed", bed_2=Arg("x")))

    assert given_names(with_names(twice)) == ["bed", "bed_2", "bed_2_2"]
    assert given_names(with_names(twice[::-1])) == ["bed_2", "bed", "bed_3"]


def test_other_sources_stay_as_they_are() -> None:
    body = (call("water", bed=Const(const(1))), call("weed", bed=Result(0, ())))

    assert with_names(body) == body


@settings(deadline=None)
@given(any_body(least=1))
def test_each_argument_has_a_name_of_its_own(body: Body) -> None:
    named = with_names(body)

    assert len(set(given_names(named))) == len(given_names(named)) == len(given_names(body))
    assert all(map(is_name, given_names(named)))
    assert parameters(named) == given_names(named)
    assert [(a.name, a.role, a.target) for a in named] == [(a.name, a.role, a.target) for a in body]
    assert with_names(named) == named


def test_parameters_come_in_the_order_in_which_they_are_needed() -> None:
    body = (call("a", y=Arg("y"), z=Arg("x")), call("b", x=Arg("x"), w=Arg("w")))

    assert parameters(body) == ["y", "x", "w"]


@settings(deadline=None)
@given(st.text())
def test_any_text_is_an_identifier_of_a_name(text: str) -> None:
    name = identifier(text)

    assert is_name(name)
    assert not keyword.iskeyword(name)
    assert name.isascii()
    assert len(name) <= 61


def test_identifiers_stay_readable() -> None:
    said = ["Bed name", "2nd bed", "class", "日本", "_x_", "Größe"]

    assert list(map(identifier, said)) == ["bed_name", "_2nd_bed", "class_", "value", "x", "gr_e"]


def test_a_function_is_named_for_its_first_and_its_last_action() -> None:
    body = (press("link", "beds"), call("wait"), press("button", "save the new bed now"))

    assert function_name(body) == "click_beds_then_click_save_the_new"
    assert function_name(body[:1]) == "click_beds"
    assert function_name((call("find_berth"), call("hold_berth"))) == "find_berth_then_hold_berth"


def test_an_id_is_of_a_domain_and_of_all_that_is_done() -> None:
    body = (call("find_berth", boat=Arg("boat")), call("hold_berth", code=Result(0, ("code",))))

    assert skill_id_of("harbour", body) == skill_id_of("harbour", tuple(body))
    assert skill_id_of("harbour", body).startswith("harbour/")
    others = [body[::-1], body[:1], (body[0], call("hold_berth", code=Result(0, ("Code",))))]
    assert len({skill_id_of("harbour", each) for each in [body, *others]} | {skill_id_of("port", body)}) == 5


def test_a_key_with_half_a_character_has_an_id_too() -> None:
    assert skill_id_of("d", (call("a"), call("b", x=Result(0, ("\ud83d",)))))
