"""Names and code of skills: the code says what the actions do, and back."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable
from pathlib import Path

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
    const,
    is_name,
    told,
)
from tasks.induce.skills.skill import (
    actions_of,
    code_of,
    function_name,
    identifier,
    parameters,
    skill_id_of,
    with_names,
)
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
    twice = (call("water", bed=Arg("x")), call("water", bed=Arg("x")), call("weed", bed_2=Arg("x")))
    assert given_names(with_names(twice)) == ["bed", "bed_2", "bed_2_2"]
    assert given_names(with_names(twice[::-1])) == ["bed_2", "bed", "bed_3"]


@given(any_body(least=1))
def test_each_argument_has_a_name_of_its_own(body: Body) -> None:
    named = with_names(body)
    assert len(set(given_names(named))) == len(given_names(named)) == len(given_names(body))
    assert all(map(is_name, given_names(named)))
    assert parameters(named) == given_names(named)
    assert [(a.name, a.role, a.target) for a in named] == [(a.name, a.role, a.target) for a in body]
    assert with_names(named) == named


@given(st.text())
def test_any_text_is_an_identifier_of_a_name(text: str) -> None:
    name = identifier(text)
    assert is_name(name)
    assert not keyword.iskeyword(name)
    assert name.isascii()
    assert len(name) <= 61
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
    others = [body[::-1], body[:1], (body[0], call("hold_berth", code=Result(0, ("\ud83d",))))]
    assert len({skill_id_of("harbour", each) for each in [body, *others]} | {skill_id_of("port", body)}) == 5


BODY: Body = (
    press("link", "beds", Arg("beds_link")),
    press("button", "add bed", Find(0)),
    SkillAction("fill", "textbox", "name", (("element", Find(0)), ("text", Arg("name_text")))),
)


def test_code_says_each_action_as_a_call() -> None:
    assert code_of("add_bed", BODY) == (
        "def add_bed(beds_link, name_text):\n"
        "    click(element=beds_link, on=['link', 'beds'])\n"
        "    click(on=['button', 'add bed', 0])\n"
        "    fill(text=name_text, on=['textbox', 'name', 0])\n"
    )
    read = call("hold_berth", code=Result(0, ("berth", "code")))
    assert code_of("moor", (call("find_berth", boat=Const(const("Petrel"))), read)) == (
        "def moor():\n    find_berth(boat='Petrel')\n    hold_berth(code_from=[0, 'berth', 'code'])\n"
    )


@given(any_body())
def test_code_gives_back_exactly_its_actions(body: Body) -> None:
    name = function_name(body)
    code = code_of(name, body)
    assert actions_of(code) == (name, body)
    assert actions_of(code, [action.name for action in body]) == (name, body)
    assert code_of(*actions_of(code)) == code


def in_call(given: str) -> str:
    return f"def f(x):\n    a({given})\n    b(x=x)\n"


WRONG_ARGUMENTS = [
    "1", "*x", "**x", "**{'x': 1}", "x=y", "x=a()", "x=x.y", "x=x[0]", "x=[x]", "x=f'{x}'", "x=lambda: 1",
    "x=1 if x else 2", "x=[y for y in x]", "x=b'x'", "x={1, 2}", "x=set()", "x=1j", "x=1 + 2j", "x=...",
    "x={(1, 2): 3}", "x={**x}", "x=1e999", "x=x, x=x", "on=x", "on=[]", "on=['link']",
    "on=['link', 'a', 'b']",
    "on=['link', 'a', -1]", "on=['link', 'a', 1.5]", "on=['link', 'a', True]", "on=['link', 'a', 0, 0]",
    "on=['link', None]", "on=[None, 'a']", "on=[['link'], 'a']", "on=[1, 2]",
    "element=1, on=['link', 'a', 0]",
    "x_from=[0, 'k']", "x_from=[-1]", "x_from=[1]", "x_from=[True]", "x_from=['k']", "x_from=[]",
    "x_from='s'",
    "x_from=x", "_from=[0]", "(x := 1)", "x=(yield)", "x=await_()", "x=__import__('os')", "x=print",
]  # fmt: skip


@pytest.mark.parametrize("given", WRONG_ARGUMENTS)
def test_an_argument_that_is_neither_parameter_nor_value_is_refused(given: str) -> None:
    with pytest.raises(WrongInput):
        actions_of(in_call(given))


@pytest.mark.parametrize(
    "code",
    [
        "", "x", "f()", "\0", "def f(): pass", "def f():\n    a()\n", "def f():\n" + "    a()\n" * 6,
        "def f(x):\n    a()\n    b()\n", "def f(x, y=1):\n    a(x=x)\n    b(x=y)\n",
        "def f(*x):\n    a()\n    b()\n", "def f(*, x):\n    a(x=x)\n    b()\n",
        "def f(x, /):\n    a(x=x)\n    b()\n", "def f(**x):\n    a()\n    b()\n",
        "@a\ndef f():\n    a()\n    b()\n",
        "async def f():\n    a()\n    b()\n",
        "class f:\n    a()\n    b()\n",
        "def f():\n    'says'\n    a()\n",
        "def f():\n    a()\n    return b()\n",
        "def f():\n    a()\n    x = b()\n",
        "def f():\n    a()\n    b.c()\n",
        "def f():\n    a()\n    b()()\n",
        "def f():\n    a()\n    import os\n",
        "def f():\n    a()\n    b()\ndef g():\n    a()\n    b()\n", "import os\ndef f():\n    a()\n    b()\n",
        "def f():\n    if a():\n        b()\n    c()\n",
        "def f():\n    a()\n    b(\n",
        "def f():\n  a()\n b()\n",
        *(
            f"def f(x):\n    {wrong}\n    click(x)\n"  # what an action does not take by position
            for wrong in ("click(x, x)", "fill(x, element=x)", "click(*x)", "open_gate(x)", "click(x.y)")
        ),
    ],
)  # fmt: skip
def test_what_is_no_function_of_two_to_five_bare_calls_is_refused(code: str) -> None:
    with pytest.raises(WrongInput):
        actions_of(code)


def test_actions_that_the_domain_does_not_have_are_refused() -> None:
    code = "def f():\n    open_gate()\n    __import__(name='os')\n"
    with pytest.raises(WrongInput, match="__import__ is no action"):
        actions_of(code, ["open_gate", "close_gate"])


DEEP: dict[str, Callable[[int], str]] = {
    "sums": lambda n: "+".join("1" * n),
    "signs": lambda n: "-" * n + "1",
    "lists": lambda n: "[" * n + "]" * n,
    "attributes": lambda n: "x" + ".a" * n,
    "calls": lambda n: "x" + "()" * n,
    "digits": lambda n: "1" * n,
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("n", [190, 450, 900, 5_000])
def test_depth_and_length_break_nothing(kind: str, n: int) -> None:
    try:
        name, body = actions_of(in_call(f"x={DEEP[kind](n)}"))
    except WrongInput:
        return
    assert (name, actions_of(code_of(name, body))) == ("f", (name, body))


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ("def ask_way(a_id, b_id, go_id, a, b):\n fill(a_id, a)\n fill(b_id, b)\n click(go_id)\n",
         ("def ask_way(a_id, a, b_id, b, go_id):\n    fill(element=a_id, text=a)\n"
         "    fill(element=b_id, text=b)\n    click(element=go_id)\n")),
        ("def carry_by(open_id, list_id, who):\n click(open_id)\n select_option(list_id, who)\n",
         ("def carry_by(open_id, list_id, who):\n    click(element=open_id)\n"
         "    select_option(element=list_id, option=who)\n")),
        ("def seek(words):\n fill('q', words)\n keyboard_press('Enter')\n",
         "def seek(words):\n    fill(element='q', text=words)\n    keyboard_press(key='Enter')\n"),
        ("def end(b, message):\n click(b)\n send_msg_to_user(message)\n",
         "def end(b, message):\n    click(element=b)\n    send_msg_to_user(text=message)\n"),
    ],
)  # fmt: skip
def test_skills_as_sgdr_prints_them_are_read(printed: str, named: str) -> None:
    assert code_of(*actions_of(printed)) == named


def test_nothing_of_the_code_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    codes = [
        touch, f"def f(x={touch}):\n    a(x=x)\n    b()\n",
        f"def f(x: {touch}) -> {touch}:\n    a(x=x)\n    b()\n", f"@{touch}\ndef f():\n    a()\n    b()\n",
        f"def f():\n    {touch}\n    {touch}\n", f"def f():\n    a(x={touch})\n    b(on=[{touch}, 'a'])\n",
        f"def f():\n    a(x_from=[{touch}])\n    b()\n", f"def f():\n    a(x=f'{{{touch}}}')\n    b()\n",
    ]  # fmt: skip
    for code in codes:
        try:
            actions_of(code)
        except WrongInput:
            continue
    assert not mark.exists()


_PIECES = [
    "def f(", "x", "):", "\n    ", "a", "(", ")", "=", ",", "on", "_from", "[", "]", "'s'", "0", "-", "*",
]  # fmt: skip
_PIECES += ["**", "{", "}", ":", "None", "True", "1e9", "1j", ".", "lambda", "\\", "\n", "element", "@", "#"]


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join) | st.text(max_size=20), st.integers(0, 3))
def test_hostile_code_is_refused_or_gives_actions(piece: str, place: int) -> None:
    code = [piece, f"def f(x):\n    a({piece})\n    b(x=x)\n", f"def f(x):\n    {piece}\n    b(x=x)\n"]
    code.append(f"def f({piece}):\n    a(x=1)\n    b()\n")
    try:
        name, body = actions_of(code[place])
    except WrongInput:
        return
    assert actions_of(code_of(name, body)) == (name, body)
    assert hash(body) == hash(actions_of(code[place])[1])
    assert skill_id_of("d", body)
    assert [row["name"] for row in told(body)] == [action.name for action in body]
    assert isinstance(ast.parse(code_of(name, body)).body[0], ast.FunctionDef)
