"""Records of runs, outlines of their pages, steps that are kept; secrets are put together here."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.induce.skills.actions import Result
from tasks.induce.skills.windows import decision_points
from tasks.induce.trajectories.cleaning import CleanStep, cleaned, is_web
from tasks.induce.trajectories.outline import Element, folded, is_cut, outline_of, without_ids
from tasks.induce.trajectories.record import digest_of, trajectory_of
from tasks.induce.trajectories.redaction import redacted
from tests.support.induce.recordings import PAGE, row, step

LINES = st.lists(
    st.sampled_from(['[1] button "A"', '  [x] link "B \\', "[2] ", '[2] row ""', "...", 'text "t"'])
)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Inbox 19", "inbox"),
        ("Inbox (19)", "inbox"),
        ("19", "19"),
        ("Row 3 4", "row 3"),
        ("  Save_as…  PDF ", "save as pdf"),
        ("★", ""),
        ("Überblick", "überblick"),
    ],
)
def test_a_name_is_folded_to_lower_case_words_without_a_count(name: str, label: str) -> None:
    assert folded(name) == label


def test_only_lines_with_an_id_are_elements() -> None:
    outline = outline_of('text "Shop"\n[1] button "Seeds 12" active\n  [a7] link\n[3]\n[4] button')
    assert outline.elements == {
        "1": Element("1", "button", "seeds", 0),
        "a7": Element("a7", "link", "", 0),
        "4": Element("4", "button", "", 0),
    }


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("[7] button 'Save'", "save"), ("[7] link 'Ann\\'s shop'", "ann s shop"),
        ("[7] link \"Ann's\"", "ann s"), ("\t\t[7] textbox 'Zip' required: False", "zip"),
        ("[7] menuitem ''", ""), ('[7] link "Beans and pe', ""), ('[7] link "Beans\\', ""),
        ('[7] link "Be\\x"', "be x"), ('[7] link "Be\\"an\\" tin"', "be an tin"),
        ('[7] link "\\u0042eans"', "beans"), ('[7] link "\\ud800eans"', "eans"),
    ],
)  # fmt: skip
def test_a_name_in_either_quotes_is_read_as_far_as_it_is_whole(line: str, label: str) -> None:
    assert outline_of(line).elements["7"].label == label


def test_elements_alike_are_told_apart_by_their_ordinals() -> None:
    outline = outline_of('[1] link "Edit"\n[2] button "Edit"\n[3] link "edit 4"\n[9] link "Edit"')
    assert [outline.elements[i].ordinal for i in ("1", "2", "3", "9")] == [0, 0, 1, 2]
    assert outline.counts == {("link", "edit"): 3, ("button", "edit"): 1}
    assert outline.shows("link", "edit", 2)
    assert not outline.shows("link", "edit", 3)
    assert not outline.shows("row", "edit")
    twice = outline_of('[1] link "Edit"\n[1] button "Save"')  # of two with one id the first is the element
    assert (twice.elements["1"].role, twice.shows("button", "save")) == ("link", False)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b"])
def test_a_separator_inside_a_name_ends_no_line(separator: str) -> None:
    outline = outline_of(f'[1] link "Beans{separator}[2] button"\r\n[3] link "Peas"')
    assert list(outline.elements) == ["1", "3"]
    assert outline.elements["3"].label == "peas"


def test_a_page_is_cut_where_a_line_holds_three_dots() -> None:
    assert is_cut('[1] link "Edit"\n  ...')
    assert not is_cut('[1] link "..."\ntext "Wait..."')


@given(st.text() | LINES.map("\n".join))
def test_any_text_makes_an_outline_whose_counts_are_those_of_its_elements(text: str) -> None:
    outline = outline_of(text)
    assert sum(outline.counts.values()) == len(outline.elements)
    assert all(outline.shows(each.role, each.label, each.ordinal) for each in outline.elements.values())
    assert all(key == each.element_id for key, each in outline.elements.items())


def test_a_page_without_ids_is_the_same_when_it_is_redrawn() -> None:
    page = '[1] list "Plots"\n  [2] link "[3] peas"\ntext "[4] beans"\n...'
    assert without_ids(page) == without_ids(page.replace("[1]", "[a7]").replace("[2]", "[40]"))
    assert without_ids(page) == 'list "Plots"\n  link "[3] peas"\ntext "[4] beans"\n...'


@pytest.mark.parametrize(
    "text", ["\n" * 200_000, "[" * 200_000, '[1] a "' + "\\" * 200_001, " " * 200_000, "[1] " * 50_000]
)
def test_a_long_line_of_signs_takes_no_long_time(text: str) -> None:
    assert len(outline_of(text).elements) <= 1
    assert len(without_ids(text)) <= len(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_all_that_is_known_of_a_run_is_read() -> None:
    found = trajectory_of(row(actor="a person"))
    assert (found.trajectory_id, found.task_id, found.domain) == ("run-1", "order-beans", "garden")
    assert (found.task, found.success) == ("Order beans.", True)
    assert [each.action.name for each in found.steps] == ["find_seed", "order"]
    assert found.steps[1].action.args == {"seed_id": "b1", "packets": 2}
    assert [each.t for each in found.steps] == [0, 1]
    assert [found.after(place) for place in (0, 1)] == [
        'find_seed returned: {"id": "b1"}', "order returned: done",
    ]  # fmt: skip


def test_what_may_be_missing_is_empty() -> None:
    bare = {"observation": "", "action": {"name": "wait"}}
    (found,) = trajectory_of({**row(bare, final=None, task=""), "success": None}).steps
    assert (found.action.args, found.error, found.url, found.title) == ({}, None, "", "")


def test_an_error_is_a_text_and_an_empty_one_is_none() -> None:
    given = [
        {**step("order"), "t": t, "error": error} for t, error in enumerate(("", False, "sold out", 404))
    ]
    assert [each.error for each in trajectory_of(row(*given)).steps] == [None, None, "sold out", "404"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trajectory_id": ""}, "trajectory_id must be a text that is not empty"),
        ({"trajectory_id": 7}, "trajectory_id must be a text"),
        ({"task_id": None}, "run-1: task_id must be a text"),
        ({"domain": ["garden"]}, "run-1: domain must be a text"),
        ({"task": None}, "run-1: task must be a text"),
        ({"success": "yes"}, "success must be true, false or null"),
        ({"success": 1}, "success must be true, false or null"),
        ({"steps": None}, "steps must be a list"),
        ({"steps": {}}, "steps must be a list"),
        ({"steps": ["order"]}, "step 0: a step is an object"),
        ({"steps": [{"observation": ""}]}, "step 0: a step is an object"),
        ({"steps": [step("order"), step("two words")]}, "step 1: an action has a name"),
        ({"steps": [{"observation": "", "action": {"name": "order", "args": [1]}}]}, "step 0: an action has"),
        ({"steps": [{"observation": None, "action": {"name": "order"}}]}, "observation must be a text"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongInput, match=said):
        trajectory_of({**row(), **fields})


@given(JSON, st.sampled_from(["", *row(), "extra"]))
def test_any_value_is_read_or_refused(value: object, name: str) -> None:
    given = {**row(), name: value} if name else value
    try:
        found = trajectory_of(given)
    except WrongInput:
        return
    assert found.trajectory_id


def test_one_content_has_one_digest_whatever_the_order_of_its_fields() -> None:
    turned = dict(reversed(row().items()))
    assert digest_of(turned) == digest_of(row()) == digest_of(json.loads(json.dumps(row())))
    assert digest_of(row(final="other")) != digest_of(row())
    assert digest_of(row(actor=None)) == digest_of(row()) != digest_of(row(success=None))


@pytest.mark.parametrize("numbers", [(0, 0), (-1, 1), (True, 2), ("0", 1), (2**40, 1)])
def test_steps_have_whole_numbers_of_their_own(numbers: tuple[object, object]) -> None:
    steps = [{**step("order"), "t": number} for number in numbers]
    with pytest.raises(WrongInput, match=r"t must be a whole number|the same number"):
        trajectory_of(row(*steps))


OPENED = PAGE.replace("Seeds", "Close")


def kept(*steps: dict[str, Any], final: str = "") -> list[CleanStep]:
    return cleaned(trajectory_of(row(*steps, final=final)))[0]


def reasons(*steps: dict[str, Any], final: str = "") -> dict[str, int]:
    return dict(cleaned(trajectory_of(row(*steps, final=final)))[1])


@pytest.mark.parametrize(
    ("steps", "final", "left_out"),
    [
        ([step("order", error="sold out"), step("order", packets=1)], "", {"error": 1}),
        ([step("think", thought="beans"), step("order")], "", {"inward": 1}),
        ([step("get_input_from_user"), step("order")], "", {"inward": 1}),
        ([step("click", PAGE, element="2"), step("click", PAGE, element="1")], OPENED, {"no-change": 1}),
        # A message to a person changes no page.
        ([step("click", OPENED, element="1"), step("send_msg_to_user", PAGE, text="Which?")], PAGE, {}),
        ([step("click", OPENED, element="1"), step("report_infeasible", PAGE, reason="x")], PAGE, {}),
        ([step("order", "order returned: ok"), step("pay", "order returned: ok")], "", {}),
    ],
)
def test_a_step_that_did_nothing_is_left_out(
    steps: list[dict[str, Any]], final: str, left_out: dict[str, int]
) -> None:
    assert reasons(*steps, final=final) == left_out


def test_an_action_equal_to_the_one_kept_before_is_a_repeat() -> None:
    again = [step("order", seed="b1"), step("think"), step("order", seed="b1"), step("order", seed="b2")]
    assert reasons(*again) == {"inward": 1, "repeat": 1}
    assert [each.action.args["seed"] for each in kept(*again)] == ["b1", "b2"]


def test_a_step_of_a_page_has_its_element_and_no_result() -> None:
    for element in ("1", 1):
        (found,) = kept(step("click", PAGE, element=element), final="click returned: {}")
        assert found.target == ("click", "button", "seeds")
        assert (found.outline is not None, found.result) == (True, None)
    pressed = kept(step("click", PAGE, element="1"), step("keyboard_press", OPENED, key="Enter"), final=PAGE)
    assert pressed[1].target == ("keyboard_press", None, None)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ('order returned: {"id": 7}', {"id": 7}),
        ("order returned: [1, 2]", [1, 2]),
        ("order returned: b1", "b1"),
        ("order returned: 12", "12"),
        ("order returned: " + "[" * 100_000, "[" * 100_000),
        ("user: Thanks", None),
        ("pay returned: b1", None),
        ("", None),
    ],
)
def test_the_result_of_a_tool_is_an_object_a_list_or_a_text(answer: str, result: object) -> None:
    (found,) = kept(step("order"), final=answer)
    assert (found.result, found.outline, found.element) == (result, None, None)


def test_a_tool_may_have_an_argument_that_is_called_element() -> None:
    tool = trajectory_of(row(step("melting_point", "user: How hot?", element="Fe")))
    page = trajectory_of(row(step("click", PAGE, element="99")))
    told = trajectory_of(row(step("click", f"open_page returned: x\n{PAGE}", element="1")))
    assert [is_web(each) for each in (tool, page, told)] == [False, True, True]


PAGES = st.sampled_from([PAGE, OPENED, "", "user: [1]"])
STEPS = st.builds(
    step, st.sampled_from(["click", "think", "order", "send_msg_to_user"]), PAGES,
    st.none() | st.just("failed"), element=st.sampled_from(["1", "2", "99", None, 1]),
)  # fmt: skip


@given(st.lists(STEPS, max_size=6), PAGES | st.text())
def test_each_step_is_kept_or_counted_and_none_kept_twice_in_a_row(
    steps: list[dict[str, Any]], final: str
) -> None:
    trajectory = trajectory_of({**row(), "steps": steps, "final": final})
    found, left_out = cleaned(trajectory)
    assert len(found) + left_out.total() == len(steps)
    assert all(one.action != other.action for one, other in pairwise(found))
    assert [each.t for each in found] == sorted({each.t for each in found})


ALNUM = "k9Qw7Zr5Tx3Vb1Nm8Lp2Sd4Fg6Hj0Kc7Ye9Ua3Io5Pq1Wz8Xv6"
TOKEN, OTHER = "ghp_" + ALNUM[:36], "ghp_" + ALNUM[4:40]
PASSWORD = "Kn0t5and" + "R0pe7x"
KEY = "\n" + "\n".join("MIIE" + ALNUM[i:] + ALNUM[:i] for i in range(3)) + "\n"
PEM = f"-----BEGIN RSA PRIVATE KEY-----{KEY}-----END RSA PRIVATE KEY-----"


def clean(given: dict[str, Any]) -> dict[str, Any]:
    return dict(redacted(given, trajectory_of(given)))


def test_a_secret_is_replaced_in_every_field_and_names_and_ids_stay() -> None:
    given = row(
        {**step("open", f"user: Use {TOKEN}.", error=f"refused {TOKEN}", key=TOKEN, more=[{"at": [TOKEN]}]),
         "url": f"https://shop.example/?t={TOKEN}", "title": TOKEN, "thought": f"I use {TOKEN}"},
        task=f"Order with {TOKEN}", final=f"done {TOKEN}", actor=f"Ann {TOKEN}", task_id=f"t-{TOKEN}",
    )  # fmt: skip
    found = clean(given)
    assert json.dumps(found) == json.dumps(given).replace(TOKEN, "[redacted:github-token-1]").replace(
        "t-[redacted:github-token-1]", f"t-{TOKEN}"
    )


def test_each_secret_has_a_number_of_its_own() -> None:
    found = clean(row(step("a", f"user: {TOKEN} or {OTHER} or {TOKEN}"), step("b", PEM, old=OTHER)))
    assert found["steps"][0]["observation"] == (
        "user: [redacted:github-token-1] or [redacted:github-token-2] or [redacted:github-token-1]"
    )
    assert found["steps"][1]["action"]["args"] == {"old": "[redacted:github-token-2]"}
    assert "[redacted:private-key-1]-----END" in found["steps"][1]["observation"]


LOG_IN = '[1] textbox "Password" value=""\n[2] button "Log in"'
GOT = f'get returned: {{"password": "{PASSWORD}"}}'


@pytest.mark.parametrize(
    "steps",
    [
        [
            step("fill", LOG_IN, element="1", text=PASSWORD),
            step("click", f'{LOG_IN} "{PASSWORD}"', element="2"),
        ],
        [step("login", "user: hi", password=PASSWORD), step("say", f"user: My password is {PASSWORD}")],
        [step("get", "user: hi"), step("login", GOT, word=PASSWORD)],
    ],
    ids=["of an element", "of an argument", "of a result"],
)
def test_a_password_that_is_known_by_its_name_is_replaced_where_it_has_none(
    steps: list[dict[str, Any]],
) -> None:
    found = json.dumps(clean(row(*steps)))
    assert PASSWORD not in found
    assert "[redacted:assigned-password-1]" in found


def test_a_short_secret_is_not_replaced_inside_other_words() -> None:
    url, said = "db://ann:tangledrope@db.shop.io", "user: tangledrope, tangledropes, untangledrope"
    found = clean(
        row(step("open", said, url=url), step("tangledrope", "tangledropes returned: ok", steps="x"))
    )
    assert found["steps"][0]["observation"] == "user: [redacted:password-1], tangledropes, untangledrope"
    assert [each["action"]["name"] for each in found["steps"]] == ["open", "tangledrope"]


def test_a_key_of_several_lines_is_the_same_in_a_text_of_json() -> None:
    found = clean(row(step("get", "user: hi"), step("put", f"get returned: {json.dumps({'k': PEM})}", k=PEM)))
    result = found["steps"][1]["observation"].removeprefix("get returned: ")
    assert json.loads(result)["k"] == found["steps"][1]["action"]["args"]["k"]
    assert "[redacted:private-key-1]" in result


def test_a_secret_that_a_result_gave_is_still_bound_to_it() -> None:
    given = row(
        step("log_in", "user: Order beans.", user="ann"),
        step("order", f'log_in returned: {{"session": {{"t": "{TOKEN}"}}, "old": "{OTHER}"}}', t=TOKEN),
    )
    (body, *_) = decision_points(trajectory_of(clean(given)))[0].bodies
    assert dict(body[1].args) == {"t": Result(0, ("session", "t"))}
    plain = row(
        step("find", "user: I am ann.lee@post.example, order #W2378156.", email="ann.lee@post.example")
    )
    assert redacted(plain, trajectory_of(plain)) is plain
    assert (
        decision_points(trajectory_of(clean(given)))[0].bodies
        == decision_points(trajectory_of(given))[0].bodies
    )


_PIECES = [TOKEN, OTHER, PASSWORD, PEM, json.dumps(PEM)]
_BETWEEN = ["password: ", "://ann:", "@db.shop.io", " ", "\\n", '"', "x"]
TEXTS = st.lists(st.sampled_from([*_PIECES, *_BETWEEN]), max_size=6).map("".join)
VALUES = TEXTS | st.lists(TEXTS, max_size=2) | st.dictionaries(TEXTS, TEXTS, max_size=2)
TOLD_STEPS = st.builds(
    lambda seen, args: {"observation": seen, "action": {"name": "do", "args": args}},
    TEXTS,
    st.dictionaries(st.sampled_from(["password", "q"]), VALUES),
)


@given(st.lists(TOLD_STEPS, min_size=1, max_size=3), TEXTS)
def test_redacting_again_changes_nothing_and_the_order_of_fields_does_not_count(
    steps: list[dict[str, Any]], task: str
) -> None:
    given = row(*steps, task=f"{TOKEN} {task}")
    found = clean(given)
    assert clean(found) == found
    assert TOKEN not in json.dumps(found)
    assert clean(dict(reversed(given.items()))) == found
