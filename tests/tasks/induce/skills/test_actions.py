"""Actions of a skill as data, and what they may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.skills.actions import (
    Arg,
    Body,
    Const,
    Find,
    Result,
    SkillAction,
    body_of,
    checked,
    const,
    is_name,
    told,
)
from tests.support.induce.runs import JSON, any_body, call, press

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


@settings(deadline=None)
@given(any_body(least=1, most=7))
def test_rows_give_back_the_actions_that_they_were_told_of(body: Body) -> None:
    assert body_of(json.loads(json.dumps(told(body)))) == body


@settings(deadline=None)
@given(JSON)
def test_a_constant_gives_back_its_value(value: object) -> None:
    assert Const(const(value)).value == value
    assert const(Const(const(value)).value) == const(value)


def test_constants_of_equal_values_are_equal() -> None:
    assert const({"b": 1, "a": 2}) == const({"a": 2, "b": 1})
    assert const((1, [2])) == const([1, (2,)])
    assert const({2: "x", 10: "y"}) == const({"10": "y", "2": "x"})
    assert const(1) != const(True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1, 2}, 1j, ..., {(1, 2): 3}])
def test_what_json_cannot_say_is_no_constant(value: object) -> None:
    with pytest.raises(WrongInput):
        const(value)


def test_a_number_too_long_to_be_written_is_no_constant() -> None:
    with pytest.raises(WrongInput):
        const(10**5000)


def test_the_source_of_an_argument_is_found_by_its_name() -> None:
    assert BODY[2].source("litres") == Arg("litres")
    assert BODY[2].source("day") is None


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


@settings(deadline=None)
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
