"""What people write that no grammar foresees: taken apart as a reader would, and nothing is lost."""

from __future__ import annotations

import pytest

from tasks.parse.segment.segment import segment
from tests.support.texts.segment_invariants import check_invariants

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
