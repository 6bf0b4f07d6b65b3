from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.induce.replay.snapshot import outline_text
from tasks.induce.trajectories.outline import Element, folded, outline_of


def outline(*lines: str) -> list[str]:
    return outline_text("\n".join(lines)).split("\n")


def test_elements_that_one_can_act_on_have_ids_and_states() -> None:
    assert outline(
        '- heading "Garden" [level=1] [ref=e2]',
        '- button "Save" [disabled] [ref=e3]',
        '- checkbox "Ready" [checked] [ref=e4]',
        '- button "More" [expanded] [ref=e5]',
        '- img "Rose" [ref=e6]',
    ) == [
        '[e2] heading "Garden"',
        '[e3] button "Save" disabled',
        '[e4] checkbox "Ready" checked',
        '[e5] button "More" on',
        'text "Rose"',
    ]


def test_fields_show_their_values_and_options() -> None:
    assert outline(
        '- textbox "Name" [ref=e1]: Ada',
        '- textbox "Note" [ref=e2]',
        '- spinbutton "Pieces" [ref=e3]: "4"',
        '- combobox "Soil" [ref=e4]:',
        '  - option "loam"',
        '  - option "clay" [selected]',
    ) == [
        '[e1] textbox "Name" value="Ada"',
        '[e2] textbox "Note" value=""',
        '[e3] spinbutton "Pieces" value="4"',
        '[e4] combobox "Soil" value="clay" options=["loam", "clay"]',
    ]


def test_an_element_without_a_role_is_clickable_where_the_pointer_says_so() -> None:
    assert outline(
        "- generic [ref=e1]:",
        "  - row [ref=e2] [cursor=pointer]:",
        '    - cell "Fern" [ref=e3]',
        "    - cell [ref=e4]:",
        '      - link "Open" [ref=e5] [cursor=pointer]:',
        '        - /url: "#fern"',
        "  - generic [ref=e6]: only a text",
    ) == [
        '[e2] clickable "Fern Open"',
        '  text "Fern"',
        '  [e5] link "Open"',
        'text "only a text"',
    ]


def test_an_element_without_a_name_is_called_by_what_is_in_it() -> None:
    assert outline("- heading [level=2] [ref=e1]:", '  - link "Roses" [ref=e2]:', '    - /url: "/r"') == [
        '[e1] heading "Roses"',
        '  [e2] link "Roses"',
    ]
    assert outline("- generic [ref=e1] [cursor=pointer]:", f"  - text: {'x' * 100}")[0] == (
        f'[e1] clickable "{"x" * 90}"'
    )


def test_what_lies_above_the_page_stands_first() -> None:
    assert outline(
        '- button "Save" [ref=e1]',
        "- generic [ref=e2]:",
        '  - dialog "Sure?" [ref=e3]:',
        '    - button "Save" [ref=e4]',
        '- button "Back" [ref=e5]',
    ) == ['dialog "Sure?"', '  [e4] button "Save"', '[e1] button "Save"', '[e5] button "Back"']


@given(st.lists(st.tuples(st.sampled_from(["button", "link", "checkbox"]), st.text(max_size=12)), max_size=8))
def test_every_element_is_found_by_role_label_and_ordinal(named: list[tuple[str, str]]) -> None:
    entries = [
        f"{role} {json.dumps(name, ensure_ascii=False)} [ref=e{n}]" for n, (role, name) in enumerate(named)
    ]
    page = outline_of(outline_text(yaml.safe_dump(entries, allow_unicode=True)))
    seen: list[tuple[str, str]] = []
    for n, (role, name) in enumerate(named):
        ordinal = seen.count((role, folded(name)))
        seen.append((role, folded(name)))
        found = page.find(role, folded(name), ordinal)
        assert found == Element(f"e{n}", role, folded(name), ordinal)


def test_characters_that_yaml_does_not_allow_are_blanks() -> None:
    assert outline('- button "a\x7fb" [ref=e1]') == ['[e1] button "a b"']


def test_what_is_no_snapshot_is_refused() -> None:
    assert outline_text("") == ""
    with pytest.raises(ValueError, match="accessibility tree cannot be read"):
        outline_text("- [")
