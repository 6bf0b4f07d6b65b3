"""Outlines: which elements a page has, what they are called, and which comes first of those alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.trajectories.outline import Element, folded, is_cut, outline_of, without_ids

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


@given(st.text())
def test_a_folded_name_has_letters_and_digits_with_single_blanks(name: str) -> None:
    assert re.fullmatch(r"([^\W_]+( [^\W_]+)*)?", folded(name))


def test_only_lines_with_an_id_are_elements() -> None:
    outline = outline_of('text "Shop"\n[1] button "Seeds 12" active\n  [a7] link\n[3]\n[4] button')
    assert outline.elements == {
        "1": Element("1", "button", "seeds", 0),
        "a7": Element("a7", "link", "", 0),
        "4": Element("4", "button", "", 0),
    }


def test_elements_alike_are_told_apart_by_their_ordinals() -> None:
    outline = outline_of('[1] link "Edit"\n[2] button "Edit"\n[3] link "edit 4"\n[9] link "Edit"')
    assert [outline.elements[i].ordinal for i in ("1", "2", "3", "9")] == [0, 0, 1, 2]
    assert outline.counts == {("link", "edit"): 3, ("button", "edit"): 1}
    assert outline.shows("link", "edit", 2)
    assert not outline.shows("link", "edit", 3)
    assert not outline.shows("row", "edit")


def test_of_two_lines_with_one_id_the_first_is_the_element() -> None:
    outline = outline_of('[1] link "Edit"\n[1] button "Save"')
    assert outline.elements["1"].role == "link"
    assert not outline.shows("button", "save")


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ('[1] link "Beans and pe', ""),
        ('[1] link "Beans\\', ""),
        ('[1] link "Be\\x"', "be x"),
        ('[1] link "Be\\"an\\" tin"', "be an tin"),
        ('[1] link "\\u0042eans"', "beans"),
        ('[1] link "\\ud800eans"', "eans"),
    ],
)
def test_a_name_that_is_cut_or_escaped_wrongly_is_read_as_far_as_it_goes(line: str, label: str) -> None:
    assert outline_of(line).elements["1"].label == label


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
