from __future__ import annotations

import random
from typing import Any

import pytest

from storage.errors import WrongInput
from tasks.refine.filters import (
    FilterLimits,
    Verdict,
    count_words,
    empty,
    is_placeholder,
    no_body,
    no_instructions,
    no_language,
    not_text,
    only_placeholders,
    template,
    too_large,
    too_short,
)
from tasks.refine.text.encodings import decode
from tasks.refine.text.language import Language

BINARY = random.Random(7).randbytes(5_000)  # noqa: S311


def reason(verdict: Verdict) -> str | None:
    return verdict[0] if verdict else None


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (too_large(None, 20_971_520), "too_large"),
        (too_large(b"", 0), None),
        (empty(b""), "empty"),
        (empty(b"\n"), None),
        (not_text(decode(BINARY)[0]), "not_text"),
        (not_text(decode(b"\x7fELF" + bytes(400))[0]), "not_text"),
        (not_text("A pot,\x00 fired\x00 twice, stays whole."), None),
        (not_text("\r\n\t" * 50), None),
        (not_text(""), None),
        (no_body(""), "no_body"),
        (no_body(" \n\t\u3000\n"), "no_body"),
        (no_body("# Kiln\n\n## Firing ##\n\nCooling\n=======\n"), "no_body"),
        (no_body("#hashtag"), None),
        (no_body("# Kiln\n\nFire it."), None),
        (no_body("# Kiln\n- cone\n---"), None),
        (no_body("```\n# a remark\n```"), None),
    ],
)
def test_a_filter_keeps_or_gives_its_reason(verdict: Verdict, expected: str | None) -> None:
    assert reason(verdict) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("# Kilns\n\n- [gas](https://a.example)\n- [wood](wood.md), [salt](salt.md)\n", "no_instructions"),
        ("https://example.org/kilns", "no_instructions"),
        ("[kilns]: https://example.org", "no_instructions"),
        ("@shared/kilns.md", "no_instructions"),
        ("![kiln](kiln.png)", "no_instructions"),
        ("See [gas](https://a.example)", None),
        ("1. https://a.example, https://b.example.\n> @kilns.md @clay.md", "no_instructions"),
        ("Ask potter@clay", None),
        ("- [gas](https://a.example): heats fast", None),
        ("- [ ] fire the pot", None),
        ("```\nhttps://example.org\n```", None),
    ],
)
def test_a_list_of_links_instructs_nobody(body: str, expected: str | None) -> None:
    assert reason(no_instructions(body)) == expected


@pytest.mark.timeout(30)
@pytest.mark.parametrize("item", ["@a....", "https://a.", "[a]:x.", "[a](b) ", "[a](", "![", "- ", "> "])
def test_a_line_of_many_links_is_read_in_linear_time(item: str) -> None:
    assert no_instructions(f"{item * 20_000} !") is None


@pytest.mark.parametrize(
    ("body", "words"),
    [("Fire the pot.", 3), ("a_b c-d", 4), ("窯が冷める", 3), ("", 0), ("--- *** |", 0), ("pot 窯窯", 2)],
)
def test_words_are_counted_in_any_script(body: str, words: int) -> None:
    assert count_words(body) == words
    assert reason(too_short(body, min_words=words)) is None
    assert reason(too_short(body, min_words=words + 1)) == "too_short"


def test_what_its_author_has_not_written_is_a_template() -> None:
    assert reason(template("TODO: describe the kiln", "Fire the pot.")) == "template"
    assert reason(template("Fires pots.", "# Kiln\n\nTODO")) == "template"
    assert template("Fires pots.", "Fire the pot.") is None


@pytest.mark.parametrize(
    ("language", "least", "expected"),
    [
        (Language(None, 0.1, 400), 0.2, "no_language"),
        (Language(None, 0.1, 400), 0.0, None),
        (Language(None, 0.0, 39), 0.2, None),
        (Language(None, 0.3, 400), 0.2, None),
        (Language("de", 0.9, 400), 0.2, None),
    ],
)
def test_a_text_of_no_language_is_dropped_where_it_could_be_told(
    language: Language, least: float, expected: str | None
) -> None:
    assert reason(no_language(language, min_confidence=least)) == expected


@pytest.mark.parametrize(
    "fields",
    [{"drop_licences": ["mit"]}, {"drop_risks": "grave"}, {"min_words": -1}, {"max_control_share": 2.0}],
)
def test_limits_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(WrongInput):
        FilterLimits(**fields)


@pytest.mark.parametrize(
    "line",
    [
        "TODO", "- [ ] TODO: explain the kiln", "[TODO: what this does]", "> *TBD*",
        "Lorem ipsum dolor sit amet",
        "Insert instructions below", "<!-- Add your steps here -->",
        "(Content will be added in a later release)",
        "Coming soon...", "{{description}}", "Your skill's description here", "A brief description",
        "Replace with description of the skill and when to use it.", "[Skill name]", "skill-description",
        "Instructions to be written",
    ],
)  # fmt: skip
def test_a_placeholder_is_known(line: str) -> None:
    assert is_placeholder(line)


@pytest.mark.parametrize(
    "line",
    [
        "Fires clay.", "Finds TODO comments and files them as issues.", "Add water to the clay.", "",
        "Write the description of each pot into the log.", "Render {{name}} with the template engine.",
        "Write a commit message for the diff below.", "WIP limits for Kanban boards",
        "TODO comment triage: finds stale TODOs and opens issues", "Add unit tests for the function below",
        "The right way to write a PR description.", "Lorem ipsum generator for layouts",
        "Todo: lists in SQLite",
        "TODO: write tests for the parser, then run them with pytest -q until all of them pass",
        "The todo list app stores its items in SQLite.", "---", "Descriptions are read by the router.",
    ],
)  # fmt: skip
def test_what_only_speaks_of_placeholders_is_none(line: str) -> None:
    assert not is_placeholder(line)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("# Kiln\n\n## Steps\n\n- TODO\n- [Add a step here]\n\n---\n\nTBD", True),
        ("# Kiln\n\nTODO: more\n\nFire it.", False),
        ("# Kiln", False),
        ("", False),
    ],
)
def test_a_body_is_a_template_when_nothing_else_is_in_it(body: str, expected: bool) -> None:
    assert only_placeholders(body) is expected
