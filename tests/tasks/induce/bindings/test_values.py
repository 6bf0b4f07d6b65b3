"""Whether a value had been read by a time, and where it stands in what a tool gave."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.induce.bindings.values import at_path, is_known, leaves, paths_to, same, stands_in
from tasks.induce.skills.actions import KEY
from tests.support.induce.runs import JSON, Call, kept, tool_run

BERTHS = {"north": {"berths": [{"code": "B7", "free": True}, {"code": "B9", "free": False}]}, "fee": 40}


@pytest.mark.parametrize(
    ("value", "text", "stands"),
    [
        ("B7", "berth b7 is free", True),
        ("B7", "berth B70 is free", False),
        ("fern corner", 'the "Fern-Corner"!', True),
        ("corner fern", "Fern corner", False),
        (40, "the fee is 40.", True),
        (4.5, "4.5 metres", True),
        ("", "anything", False),
        ("?!", "?!", False),
        ("日本", "船は 日本 から", True),
    ],
)
def test_the_words_of_a_value_stand_in_a_text_as_whole_words(value: object, text: str, stands: bool) -> None:
    assert stands_in(value, text) is stands


def test_the_leaves_of_a_value_are_its_single_values() -> None:
    assert list(leaves({"a": [1, {"b": "x"}], "c": None})) == [1, "x", None]
    assert list(leaves([])) == []
    assert list(leaves("x")) == ["x"]


def test_a_caller_knows_what_was_read_when_the_window_begins() -> None:
    steps = kept(
        tool_run(
            "Moor the Petrel.",
            [("find_berth", {}, "B7 is free"), ("hold_berth", {"code": "B7"}, "ok"), ("pay", {}, "ok")],
        )
    )

    assert is_known("petrel", "Moor the Petrel.", steps, 0, 1)  # the task says it
    assert is_known("B7", "", steps, 1, 1)  # read when the window begins
    assert not is_known("B7", "", steps, 0, 1)  # read only inside the window
    assert is_known("red sails", "", steps, 0, 1)  # read nowhere: the caller's own
    assert not is_known(["petrel", {"berth": "B7"}], "Moor the Petrel.", steps, 0, 1)
    assert is_known([], "", steps, 0, 1)


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("B9", [("north", "berths", 1, "code"), ("north", 0, 1, "code"), (0, "berths", 1, "code")]),
        (40, [("fee",)]),
        ("40", [("fee",)]),  # a number whose digits the text holds
        (True, [("north", "berths", 0, "free"), ("north", 0, 0, "free"), (0, "berths", 0, "free")]),
        ("north", [(0, KEY)]),
        ("B8", []),
        (None, []),
    ],
)
def test_paths_lead_to_a_value_by_keys_and_by_places(value: object, paths: list[Any]) -> None:
    assert paths_to(value, BERTHS)[: len(paths)] == paths
    assert bool(paths_to(value, BERTHS)) is bool(paths)


def test_what_was_read_when_the_window_begins_stays_known_when_it_is_read_again() -> None:
    calls: list[Call] = [
        ("find_berth", {}, "B7 is free"),
        ("look", {}, "B7 is long"),
        ("hold", {"code": "B7"}, "ok"),
    ]
    steps = kept(tool_run("Moor the Petrel.", calls))

    assert is_known("B7", "", steps, 1, 2)
    assert not is_known("B7", "", steps, 0, 2)


def test_null_stands_nowhere() -> None:
    assert paths_to(None, {"berth": None}) == []
    assert paths_to(None, None) == []
    assert at_path({"berth": None}, ("berth",)) is None


def test_an_empty_path_is_all_that_was_given() -> None:
    assert paths_to("sent", "sent") == [()]
    assert at_path("sent", ()) == "sent"
    assert paths_to(BERTHS, BERTHS) == [()]


def test_a_key_of_the_data_that_looks_like_the_sign_for_keys_is_no_path() -> None:
    given = {"id": {"@key": "B7"}, "@key": "x"}

    assert paths_to("B7", given) == []
    assert paths_to("x", given) == []
    assert paths_to("@key", given) == [("id", 0, KEY), (0, 0, KEY), (1, KEY)]


@pytest.mark.parametrize(
    "path",
    [("south",), ("fee", 0), (9,), (-1,), ("north", "berths", 2), (KEY,), ("fee", KEY), (9, KEY), (-1, KEY)],
)
def test_nothing_stands_at_a_path_that_leads_nowhere(path: Any) -> None:  # noqa: ANN401
    assert at_path(BERTHS, path) is None


def test_truth_values_are_no_numbers() -> None:
    assert not same(1, True)
    assert not same(True, 1)
    assert not same(0, False)
    assert same(False, False)
    assert not same("40", 40)
    assert not same(1, 1.0)


def test_at_most_sixty_four_paths_are_returned_of_a_huge_result() -> None:
    assert len(paths_to("x", [{"a": "x"}] * 5_000)) == 64


def test_what_lies_deeper_than_eight_entries_is_not_sought() -> None:
    given: object = "deep"
    for _ in range(9):
        given = [given]

    assert paths_to("deep", given) == []
    assert paths_to("deep", given[0]) == [(0,) * 8]  # type: ignore[index]


@settings(deadline=None)
@given(st.data())
def test_each_path_to_a_value_leads_to_that_value(data: st.DataObject) -> None:
    held = data.draw(JSON)
    value = data.draw(st.sampled_from([held, *leaves(held)]) if list(leaves(held)) else JSON)

    paths = paths_to(value, held)

    assert all(same(at_path(held, path), value) for path in paths)
    assert len(set(paths)) == len(paths)
