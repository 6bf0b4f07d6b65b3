from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from markdown_it import MarkdownIt

from tasks.parse.segment.blocks import block_tokens
from tasks.parse.segment.headings import headings_between
from tasks.parse.segment.segment import segment
from tests.support.texts.markdown_bodies import bodies
from tests.support.texts.segment_invariants import check_invariants

_NAMES = {"paragraph_open": "paragraph", "heading_open": "heading", "table_open": "table"}


@given(body=bodies)
@settings(max_examples=400, deadline=None)
@example("\x0b\n===\n===")
@example("\x0b\n\n===\n===")
@example("    \x0b\n===\n===")
@example("text \x0b\n\n# Title \x0b")
@example("- ---\n- ***\n> ***")
@example("> a\n>\n> ```\n> x\n> ```\n>\n")
def test_every_character_lies_in_exactly_one_fragment_or_heading(body: str) -> None:
    check_invariants(body, segment(body))


@given(body=bodies)
@settings(max_examples=400, deadline=None)
@example("\x0b\n===\n===")
@example("\x0b\n\x0c\n---\n# \x0b")
@example("- a\n\x0b\n===\n\n===\n===")
@example("a\r\n===\r# b\n\r\n    c\n--")
def test_headings_are_what_stands_between_fragments(body: str) -> None:
    found = segment(body)

    assert headings_between(body, [(f.start, f.end) for f in found.fragments]) == found.headings


@given(body=bodies)
@settings(max_examples=400, deadline=None)
@example("| a | b |\n|---|---|\n\x0b\n")
@example("| a | b |\n|---|---|\n| c | d |\n \x0c\x0b \n| e | f |")
def test_blocks_are_those_of_markdown_it(body: str) -> None:
    plain = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join", "reference"])
    leaves = [*_NAMES, "fence", "code_block", "html_block", "hr", "list_item_open", "blockquote_open"]
    expected = [(_NAMES.get(t.type, t.type), t.map, t.level) for t in plain.parse(body) if t.type in leaves]

    found = [(_NAMES.get(t.type, t.type), t.map, t.level) for t in block_tokens(body)]
    assert [token for token in found if token[0] in {*_NAMES.values(), *leaves}] == expected


@given(body=bodies)
@settings(max_examples=200, deadline=None)
def test_lead_in_is_the_text_of_an_earlier_fragment_of_the_section(body: str) -> None:
    fragments = segment(body).fragments
    for i, fragment in enumerate(fragments):
        if fragment.lead_in is not None:
            same = [f.text for f in fragments[:i] if f.heading_path == fragment.heading_path]
            assert any(fragment.lead_in in text for text in same)


@pytest.mark.parametrize(
    "make",
    [
        lambda: "`" * 100_000,
        lambda: " ".join("`" * n for n in range(1, 450)),
        lambda: ">" * 50_000,
        lambda: "> " * 50_000 + "a",
        lambda: ">\n" * 20_000,
        lambda: "- " * 50_000,
        lambda: "".join(" " * (2 * n) + "- item\n" for n in range(400)),
        lambda: "* a\n" * 20_000,
        lambda: "a\n" * 50_000,
        lambda: "a b. C " * 50_000,
        lambda: "x" * 1_000_000,
        lambda: "(" * 200_000 + "a. B" + ")" * 200_000,
        lambda: "**" * 200_000,
        lambda: "[a]: b\n" * 10_000,
        lambda: "# " + " " * 500_000 + "#",
        lambda: "a | b\n" * 10_000,
        lambda: ("a|" * 180 + "\n" + "-|" * 180 + "\n" + "x\n" * 360 + "\n") * 50,
        lambda: "<a " * 20_000,
        lambda: "<a" + " b" * 200_000,
        lambda: "<!--\n" * 20_000,
        lambda: "." * 300_000 + " A",
        lambda: "a:\n\n" * 10_000,
        lambda: "\n" * 300_000,
        lambda: "\x0b\n" * 20_000,
        lambda: "=\n" * 20_000,
        lambda: "\t" * 200_000 + "a",
        lambda: "**a" * 100_000,
        lambda: "\n**" * 30_000,
        lambda: "- - -\n" * 20_000,
    ],
)
@pytest.mark.timeout(60)
def test_hostile_text_takes_seconds_at_most(make: Callable[[], str]) -> None:
    body = make()

    check_invariants(body, segment(body))
