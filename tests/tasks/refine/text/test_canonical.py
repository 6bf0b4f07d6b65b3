from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.text.canonical import BOILERPLATE, Where, canonical, control_share, strip_boilerplate
from tasks.refine.text.markdown import has_open_fence

PIECES = st.sampled_from([
    "a", "e\u0301", "\u0301", " ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\ufeff", "\x00", "\x85", "\ud800",
    "\u00a0", "\u3000", "```", "~~~", "- ", "> ", "# ", "\u2028", "\ufffd", "\u1100", "\u1161",
])  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))


@given(TEXTS)
def test_canonical_text_stays_as_it_is(text: str) -> None:
    once, _ = canonical(text)
    again, found = canonical(once)
    assert again == once
    assert [f.code for f in found if f.code != "document.replacement-characters"] == []


@given(TEXTS)
def test_canonical_text_is_composed_encodable_and_free_of_control_characters(text: str) -> None:
    once, _ = canonical(text)
    assert unicodedata.is_normalized("NFC", once)
    assert once.encode().decode() == once
    assert all(c in "\t\n" or unicodedata.category(c) != "Cc" for c in once)
    assert once == once.rstrip()
    assert not once.startswith("\n")


@given(TEXTS)
def test_newlines_of_any_kind_give_one_text(text: str) -> None:
    lines = text.replace("\r", "")
    assert canonical(lines.replace("\n", "\r\n"))[0] == canonical(lines)[0]


@given(TEXTS)
def test_nothing_visible_is_lost(text: str) -> None:
    def visible(value: str) -> str:
        kept = (c for c in value if not c.isspace() and unicodedata.category(c) not in {"Cc", "Cs"})
        return unicodedata.normalize("NFC", "".join(kept).replace("\ufeff", ""))

    assert visible(canonical(text)[0]) == visible(text)


@pytest.mark.parametrize(
    ("text", "expected", "code"),
    [
        ("a\r\nb\rc", "a\nb\nc", "document.crlf"),
        ("\ufeffa\ufeffb", "ab", "document.bom"),
        ("a\x00b\x1bc\x7fd\x85e", "abcde", "document.control-characters"),
        ("a\ufffdb", "a\ufffdb", "document.replacement-characters"),
    ],
)
def test_each_change_is_a_finding(text: str, expected: str, code: str) -> None:
    canonical_text, found = canonical(text)
    assert canonical_text == expected
    assert [f.code for f in found] == [code]


def test_letters_and_accents_are_composed_even_where_a_control_character_stood_between() -> None:
    assert canonical("cafe\u0301")[0] == "caf\u00e9"
    assert canonical("cafe\x00\u0301")[0] == "caf\u00e9"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a \nb\t\nc", "a\nb\nc"),
        ("a     \nb", "a  \nb"),
        ("a  \n\nb", "a\n\nb"),
        ("a  ", "a"),
        ("\n \n  a\n\n", "  a"),
        ("```diff\n \n-a \n```  \nb ", "```diff\n \n-a \n```\nb"),
        ("- x\n  ~~~\n  a \n  ```\n  b \n  ~~~\n  c \nd", "- x\n  ~~~\n  a \n  ```\n  b \n  ~~~\n  c\nd"),
    ],
    ids=[
        "dropped", "hard break", "no break before a blank line", "end", "blank edges", "fence",
        "nested fence",
    ],
)  # fmt: skip
def test_trailing_space_goes_except_in_code_and_hard_breaks(text: str, expected: str) -> None:
    assert canonical(text)[0] == expected


def test_a_flood_of_marks_on_one_letter_is_cut_and_found() -> None:
    text, found = canonical("a" + "\u0316\u0301" * 200_000 + "b")
    assert text.endswith("b")
    assert len(text) < 150
    assert [f.code for f in found] == ["document.stacked-marks"]
    assert canonical(text) == (text, ())


@pytest.mark.parametrize("text", ["a" + "\u0316" * 100, "\u0e01\u0e38" * 300, "\u4e00" * 300])
def test_marks_as_scripts_use_them_stay(text: str) -> None:
    assert canonical(text) == (text, ())


def test_control_share_counts_neither_tabs_nor_line_ends() -> None:
    assert control_share("a\tb\r\n") == 0
    assert control_share("a\x00\x01b") == 0.5
    assert control_share("") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", False),
        ("```\na\n```", False),
        ("```\na", True),
        ("~~~\n```\n~~~", False),
        ("````\n```\n````", False),
        ("```\na\n````", False),
        ("````\na\n```", True),
        ("```py\n```sh\n```", False),
        ("a ``` b", False),
        ("``` a ` b", False),
        ("- ```\n  a\n  ```", False),
        ("> ```\n> a\n> ```", False),
        ("1. ```\n   a", True),
    ],
)
def test_an_open_fence_is_told_from_a_closed_one(text: str, expected: bool) -> None:
    assert has_open_fence(text) is expected


TRAILER = (
    "> Source: [ann/clay](https://example.org/ann/clay) — distributed by [TomeVault](https://example.org)."
)
MARK = "<!-- tomevault:4.0:skill_md:2026-01-02 -->"
NEEDED = "Use when this capability is needed."

HITS = [
    ("tomevault-trailer", "body", f"Fire it.\n\n---\n{TRAILER}\n{MARK}\n", "Fire it."),
    ("tomevault-trailer", "body", f"Fire it.\n\n{TRAILER}", "Fire it."),
    ("tomevault-trailer", "body", f"---\n{TRAILER}\n{MARK}", ""),
    ("tomevault-comment", "body", f"Fire it.\n{MARK}\n\n", "Fire it."),
    ("tomevault-description", "description", f"Fires clay. {NEEDED}", "Fires clay."),
    ("tomevault-description", "description", NEEDED, ""),
]


@pytest.mark.parametrize(("rule", "where", "text", "expected"), HITS)
def test_known_boilerplate_is_removed_and_the_rule_named(
    rule: str, where: Where, text: str, expected: str
) -> None:
    stripped, found = strip_boilerplate(text, where)
    assert stripped == expected
    assert [(f.code, f.message) for f in found] == [("boilerplate.removed", rule)]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("body", f"{TRAILER}\n{MARK}\n\nMore follows."),
        ("body", f"The mark {MARK}"),
        ("body", "Fire it.\n\n---\n> Source: the potter's own notes\n"),
        ("body", f"Fire it. {NEEDED}"),
        ("description", f"{NEEDED} Or when it is cold."),
        ("description", "Use when this capability is needed by potters."),
        ("description", f"Re{NEEDED}"),
    ],
    ids=["in the middle", "quoted in a line", "another source", "in a body", "first", "goes on", "in a word"],
)
def test_what_only_resembles_boilerplate_stays(where: Where, text: str) -> None:
    assert strip_boilerplate(text, where) == (text, ())


def test_every_rule_has_a_text_that_it_hits() -> None:
    assert {rule.name for rule in BOILERPLATE} == {rule for rule, *_ in HITS}
