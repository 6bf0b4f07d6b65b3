from __future__ import annotations

import pytest

from tasks.refine.text.canonical import BOILERPLATE, Where, strip_boilerplate

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
