from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from markdown_it import MarkdownIt

from tasks.parse.segment.blocks import block_tokens
from tasks.parse.segment.headings import headings_between
from tasks.parse.segment.segment import segment
from tests.support.processes import slow_but
from tests.support.texts.fragments import bodies, check_invariants

Pieces = list[tuple[str, str]]


def pieces(body: str) -> Pieces:
    found = segment(body)
    check_invariants(body, found)
    return [(f.block, f.text) for f in found.fragments]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("```sh\nboil\n```text\nnot code\n", [("code", "```sh\nboil\n```text\nnot code")]),
        (
            "````md\n```sh\nboil\n```\n````\nPour.\n",
            [("code", "````md\n```sh\nboil\n```\n````"), ("prose", "Pour.")],
        ),
        ("```\nboil\n````\nPour.\n", [("code", "```\nboil\n````"), ("prose", "Pour.")]),
        ("~~~\nboil\n```\ncool\n~~~\nPour.\n", [("code", "~~~\nboil\n```\ncool\n~~~"), ("prose", "Pour.")]),
        (
            "- boil\n  ```\n  kettle --on\n- pour\n\nDrink.\n",
            [
                ("list_item", "- boil"),
                ("code", "  ```\n  kettle --on"),
                ("list_item", "- pour"),
                ("prose", "Drink."),
            ],
        ),
    ],
)
def test_a_fence_that_does_not_match_ends_where_its_container_does(body: str, expected: Pieces) -> None:
    assert pieces(body) == expected


def test_code_in_a_nested_list_belongs_to_its_item() -> None:
    code = "      ```\n      kettle --on\n      ```"
    body = f"1. Boil\n   1. fill it\n{code}\n   2. wait:\n\n          kettle --off\n2. Pour\n"
    assert pieces(body) == [
        ("list_item", "1. Boil"),
        ("list_item", "1. fill it"),
        ("code", code),
        ("list_item", "2. wait:"),
        ("code", "          kettle --off"),
        ("list_item", "2. Pour"),
    ]
    assert segment(body).fragments[4].lead_in == "2. wait:"


def test_front_matter_that_stands_twice_is_prose_and_makes_no_heading() -> None:
    found = segment("---\nname: tea\ndescription: Brews tea.\n---\n\n# Tea\n\nBoil the water.\n")
    assert [f.text for f in found.fragments] == [
        "---\nname: tea\ndescription: Brews tea.\n---", "Boil the water."
    ]  # fmt: skip
    assert [h.title for h in found.headings] == ["Tea"]


@pytest.mark.parametrize("rows", ["| green | 70 |\n| black | 95 |", "|---|---|\n| green | 70 |"])
def test_a_table_without_a_header_stays_together(rows: str) -> None:
    assert pieces(f"Heat it:\n\n- well\n\n{rows}\n\nThen pour.\n")[2:] == [
        ("prose", rows),
        ("prose", "Then pour."),
    ]


def test_hard_wrapped_prose_is_cut_at_sentences_and_not_at_lines() -> None:
    body = "Bring the water to the boil, then\nlet it cool to seventy\ndegrees. Pour it\nslowly. Wait.\n"
    assert pieces(body) == [
        ("prose", "Bring the water to the boil, then\nlet it cool to seventy\ndegrees."),
        ("prose", "Pour it\nslowly."),
        ("prose", "Wait."),
    ]


def test_the_deepest_heading_has_six_marks_and_what_has_seven_is_text() -> None:
    found = segment("# A\n\n###### Six\n\n- pour\n\n####### Seven\n\nwait\n")
    assert [(f.text, f.heading_path) for f in found.fragments] == [
        ("- pour", ("A", "Six")), ("####### Seven", ("A", "Six")), ("wait", ("A", "Six"))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "洗米三次。水清了吗？静置一小时！然后：\n\n- 加水\n",
            ["洗米三次。", "水清了吗？", "静置一小时！", "然后：", "- 加水"],
        ),
        ("اغسل الأرز جيدا. هل الماء صاف؟ اتركه ساعة.", ["اغسل الأرز جيدا.", "هل الماء صاف؟", "اتركه ساعة."]),
        ("שטפו את האורז. האם המים צלולים? חכו שעה.", ["שטפו את האורז.", "האם המים צלולים?", "חכו שעה."]),
        ("쌀을 씻으세요. 물이 맑습니까? 기다리세요.", ["쌀을 씻으세요.", "물이 맑습니까?", "기다리세요."]),
    ],
)
def test_sentences_end_in_every_script(body: str, expected: list[str]) -> None:
    assert [text for _, text in pieces(body)] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "<table>\n<tr><td>tea</td></tr>\n</table>\n\nPour <b>it</b>.\n",
            [("html", "<table>\n<tr><td>tea</td></tr>\n</table>"), ("prose", "Pour <b>it</b>.")],
        ),
        (
            "<details>\n<summary>More</summary>\n\nBoil. Pour.\n\n</details>\n",
            [
                ("html", "<details>\n<summary>More</summary>"),
                ("prose", "Boil."),
                ("prose", "Pour."),
                ("html", "</details>"),
            ],
        ),
        ("<!-- never\n\nclosed\n\n# Tea\n", [("html", "<!-- never\n\nclosed\n\n# Tea")]),
    ],
)
def test_html_is_kept_whole_and_markdown_inside_it_is_read(body: str, expected: Pieces) -> None:
    assert pieces(body) == expected


_NAMES = {"paragraph_open": "paragraph", "heading_open": "heading", "table_open": "table"}


@given(body=bodies)
@settings(max_examples=150)
@example("\x0b\n===\n===")
@example("\x0b\n\n===\n===")
@example("    \x0b\n===\n===")
@example("text \x0b\n\n# Title \x0b")
@example("- ---\n- ***\n> ***")
@example("> a\n>\n> ```\n> x\n> ```\n>\n")
def test_every_character_lies_in_exactly_one_fragment_or_heading(body: str) -> None:
    check_invariants(body, segment(body))


@given(body=bodies)
@settings(max_examples=150)
@example("\x0b\n===\n===")
@example("\x0b\n\x0c\n---\n# \x0b")
@example("- a\n\x0b\n===\n\n===\n===")
@example("a\r\n===\r# b\n\r\n    c\n--")
def test_headings_are_what_stands_between_fragments(body: str) -> None:
    found = segment(body)
    assert headings_between(body, [(f.start, f.end) for f in found.fragments]) == found.headings


@given(body=bodies)
@settings(max_examples=150)
@example("| a | b |\n|---|---|\n\x0b\n")
@example("| a | b |\n|---|---|\n| c | d |\n \x0c\x0b \n| e | f |")
def test_blocks_are_those_of_markdown_it(body: str) -> None:
    plain = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join", "reference"])
    leaves = [*_NAMES, "fence", "code_block", "html_block", "hr", "list_item_open", "blockquote_open"]
    expected = [(_NAMES.get(t.type, t.type), t.map, t.level) for t in plain.parse(body) if t.type in leaves]
    found = [(_NAMES.get(t.type, t.type), t.map, t.level) for t in block_tokens(body)]
    assert [token for token in found if token[0] in {*_NAMES.values(), *leaves}] == expected


@given(body=bodies)
@settings(max_examples=80)
def test_lead_in_is_the_text_of_an_earlier_fragment_of_the_section(body: str) -> None:
    fragments = segment(body).fragments
    for i, fragment in enumerate(fragments):
        if fragment.lead_in is not None:
            same = [f.text for f in fragments[:i] if f.heading_path == fragment.heading_path]
            assert any(fragment.lead_in in text for text in same)


TELLING: list[Callable[[], str]] = [
    lambda: "`" * 100_000,
    lambda: "".join(" " * (2 * n) + "- item\n" for n in range(400)),
    lambda: "a\n" * 50_000,
    lambda: "**" * 200_000,
    lambda: ("a|" * 180 + "\n" + "-|" * 180 + "\n" + "x\n" * 360 + "\n") * 50,
    lambda: "<a" + " b" * 200_000,
    lambda: "**a" * 100_000,
]
MORE: list[Callable[[], str]] = [
    lambda: " ".join("`" * n for n in range(1, 450)),
    lambda: ">" * 50_000,
    lambda: "> " * 50_000 + "a",
    lambda: ">\n" * 20_000,
    lambda: "- " * 50_000,
    lambda: "* a\n" * 20_000,
    lambda: "a b. C " * 50_000,
    lambda: "x" * 1_000_000,
    lambda: "(" * 200_000 + "a. B" + ")" * 200_000,
    lambda: "[a]: b\n" * 10_000,
    lambda: "# " + " " * 500_000 + "#",
    lambda: "a | b\n" * 10_000,
    lambda: "<a " * 20_000,
    lambda: "<!--\n" * 20_000,
    lambda: "." * 300_000 + " A",
    lambda: "a:\n\n" * 10_000,
    lambda: "\n" * 300_000,
    lambda: "\x0b\n" * 20_000,
    lambda: "=\n" * 20_000,
    lambda: "\t" * 200_000 + "a",
    lambda: "\n**" * 30_000,
    lambda: "- - -\n" * 20_000,
]


@pytest.mark.parametrize("make", slow_but(TELLING, [*TELLING, *MORE]))
@pytest.mark.timeout(60)
def test_hostile_text_takes_seconds_at_most(make: Callable[[], str]) -> None:
    body = make()
    check_invariants(body, segment(body))
