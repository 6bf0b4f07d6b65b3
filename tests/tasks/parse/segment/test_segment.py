from __future__ import annotations

import json
import re
from textwrap import dedent

import polars as pl
import pytest

from tasks.parse.segment.headings import Heading, headings_between
from tasks.parse.segment.segment import Fragment, segment
from tests.support.paths import SHARED
from tests.support.texts.fragments import check_invariants


def blocks(body: str) -> list[tuple[str, str]]:
    return [(f.block, f.text) for f in segment(dedent(body)).fragments]


def lead_ins(body: str) -> list[tuple[str, str | None]]:
    return [(f.text, f.lead_in) for f in segment(dedent(body)).fragments]


def test_fragments_carry_everything_about_their_place() -> None:
    body = "# Tea\n\nBoil water. Then:\n\n- pour\n"
    found = segment(body)
    assert found.headings == (Heading(1, "Tea", 0, 5),)
    assert found.fragments == (
        Fragment(0, ("Tea",), None, "prose", 7, 18, "Boil water."),
        Fragment(1, ("Tea",), None, "prose", 19, 24, "Then:"),
        Fragment(2, ("Tea",), "Then:", "list_item", 26, 32, "- pour"),
    )


def test_each_list_item_is_a_fragment_and_nested_blocks_are_their_own() -> None:
    body = """\
        1. Heat it
           slowly.

           Not too much.
           - low
           - high

           then wait
           ```sh
           heat --now
           ```
        2. [ ] Serve
        """
    assert blocks(body) == [
        ("list_item", "1. Heat it\n   slowly.\n\n   Not too much."),
        ("list_item", "- low"),
        ("list_item", "- high"),
        ("list_item", "then wait"),
        ("code", "   ```sh\n   heat --now\n   ```"),
        ("list_item", "2. [ ] Serve"),
    ]


def test_grouped_a_list_is_one_with_all_in_it_and_with_what_announces_it() -> None:
    body = (
        "Then:\n\n- pour\n- wait:\n\n      kettle\n- drink\n\nRun this:\n\n```\nboil\n```\nSee.\n\n"
        "Or so:\n\n# \n\n- apart\n"
    )
    found = segment(body, grouped=True)
    check_invariants(body, found)
    assert [(f.block, f.text) for f in found.fragments] == [
        ("list_item", "Then:\n\n- pour\n- wait:\n\n      kettle\n- drink"),
        ("code", "Run this:\n\n```\nboil\n```"),
        ("prose", "See."),
        ("prose", "Or so:"),
        ("list_item", "- apart"),
    ]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ("code", "```py\na = 1. B\n\nb: 2\n```"),
        ("code", "    indented\n\n      code"),
        ("table", "| a | b. C |\n|---|---|\n| 1 | 2 |"),
        ("table", "a | b\n--|--\n1 | 2"),
        ("html", "<details>\nOne. Two.\n</details>"),
        ("html", "<!-- one\n\ntwo. Three -->"),
        ("list_item", "-"),
    ],
)
def test_block_stays_whole(block: str, text: str) -> None:
    assert blocks(f"Before it.\n\n{text}\n\n# End\n") == [("prose", "Before it."), (block, text)]


def test_fence_that_is_never_closed_takes_the_rest() -> None:
    assert blocks("Text.\n~~~\na = 1\n\n# no heading\n\n") == [
        ("prose", "Text."),
        ("code", "~~~\na = 1\n\n# no heading"),
    ]


def test_quotes_are_prose_and_keep_their_markers() -> None:
    assert blocks("> One here. Two\n> goes on.\n>\n> - point\n") == [
        ("prose", "> One here."),
        ("prose", "Two\n> goes on.\n>"),
        ("list_item", "> - point"),
    ]


def test_heading_path_follows_the_levels() -> None:
    body = "a\n# One\nb\n## Two ##\nc\n\nThree\n-----\n#### **Deep**\nd\n# Four\ne\n"
    assert [(f.text, f.heading_path) for f in segment(body).fragments] == [
        ("a", ()),
        ("b", ("One",)),
        ("c", ("One", "Two")),
        ("d", ("One", "Three", "**Deep**")),
        ("e", ("Four",)),
    ]


@pytest.mark.parametrize("body", ["- # no heading", "> # no heading", "> text\n> ===", "- text\n  ---"])
def test_heading_inside_a_container_is_text(body: str) -> None:
    found = segment(body)
    assert found.headings == ()
    assert [f.text for f in found.fragments] == [body]


@pytest.mark.parametrize(
    ("body", "titles"),
    [
        ("Title\n---\n", ["Title"]),
        ("Two\nlines\n===\n", ["Two lines"]),
        ("# A\n## B\nC\n=\n", ["A", "B", "C"]),
        ("# a\\#\n#\n####### no\n", ["a\\#", ""]),
        ("A sentence that ends.\n---\n", []),
        ("name: x\nkind: y\n---\n", []),
        ("**Goal:** warm\n**Status:**\n---\n", []),
    ],
)
def test_headings_with_content_or_without(body: str, titles: list[str]) -> None:
    found = segment(body)
    assert [h.title for h in found.headings] == titles
    assert headings_between(body, [(f.start, f.end) for f in found.fragments]) == found.headings


def test_announcing_sentence_takes_in_the_prose_after_it() -> None:
    assert blocks("**Note:**\n\nIt is hot. Mind it.\n\nOtherwise\n\nleave it be.") == [
        ("prose", "**Note:**\n\nIt is hot."),
        ("prose", "Mind it."),
        ("prose", "Otherwise\n\nleave it be."),
    ]


def test_announcing_sentence_does_not_reach_over_a_heading_or_a_rule() -> None:
    assert blocks("Steps:\n\n# Next\n\nText. More:\n\n---\n\nRest.") == [
        ("prose", "Steps:"),
        ("prose", "Text."),
        ("prose", "More:\n\n---"),
        ("prose", "Rest."),
    ]


def test_lead_in_is_what_announces_a_list_code_table_or_html() -> None:
    body = """\
        Use this when

        - cold
        - wet

        Run:
        ```
        go
        ```
        ```
        again
        ```
        Sizes：

        | a |
        |---|

        Look:

        <br>

        No announcement.

        - last
        """

    assert [lead for _, lead in lead_ins(body)] == [
        None, "Use this when", "Use this when",
        None, "Run:", None,
        None, "Sizes：", None, "Look:",
        None, None,
    ]  # fmt: skip


def test_nested_lead_in_is_the_parent_item_or_what_announced_its_list() -> None:
    body = """\
        Do:
        - first:
          - a
            - aa
          - b

          ```
          x
          ```
        - second
          - c
        - third:
          ```
          y
          ```
        """

    assert lead_ins(body) == [
        ("Do:", None),
        ("- first:", "Do:"),
        ("- a", "- first:"),
        ("- aa", "- first:"),
        ("- b", "- first:"),
        ("  ```\n  x\n  ```", "Do:"),
        ("- second", "Do:"),
        ("- c", "Do:"),
        ("- third:", "Do:"),
        ("  ```\n  y\n  ```", "- third:"),
    ]


def test_code_beside_an_announcing_item_is_led_in_by_it() -> None:
    assert lead_ins("1. Run:\n\n```\ngo\n```\n") == [("1. Run:", None), ("```\ngo\n```", "1. Run:")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Text.\n\n---\n", ["Text.\n\n---"]),
        ("- item\n\n***\n", ["- item\n\n***"]),
        ("```\nx\n```\n\n---\n\nText. More.", ["```\nx\n```", "---\n\nText.", "More."]),
        ("```\nx\n```\n\n---\n\n- item", ["```\nx\n```", "---\n\n- item"]),
        ("```\nx\n```\n\n---\n\n# Next\n\ny", ["```\nx\n```", "---", "y"]),
        ("# A\n\n---\n***\n\n```\nx\n```", ["---\n***", "```\nx\n```"]),
    ],
)
def test_rule_belongs_to_the_text_beside_it(body: str, expected: list[str]) -> None:
    assert [f.text for f in segment(body).fragments] == expected


def test_link_definitions_are_kept_as_prose() -> None:
    assert blocks("[a]: /one\n[b]: /two 'B'\n") == [("prose", "[a]: /one"), ("prose", "[b]: /two 'B'")]


def test_text_below_the_deepest_nesting_is_kept() -> None:
    assert "".join(text for _, text in blocks("> " * 40 + "deep")).endswith("deep")


@pytest.mark.parametrize("body", ["", " \n\t\n", "\ufeff# x"])
def test_body_without_content_has_no_fragment_or_one(body: str) -> None:
    assert [f.text for f in segment(body).fragments] == ([body] if body.strip() else [])


def test_lead_in_and_path_are_cut_where_hostile_text_would_fill_the_index() -> None:
    found = segment(f"# {'t' * 5000}\n\n{'x' * 5000}:\n\n- item\n")
    assert found.headings[0].title == "t" * 5000
    assert found.fragments[1].heading_path == ("t" * 300,)
    assert found.fragments[1].lead_in == "x" * 999 + ":"


CORPUS = SHARED / "corpus/skills.parquet"
PAGING = SHARED / "bench/paging"
_FRONT_MATTER = re.compile(r"\A---\r?\n.*?^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)


def fold(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not CORPUS.exists(), reason="the shared corpus is not here")
def test_every_document_of_the_corpus_is_taken_apart_exactly() -> None:
    for content in pl.read_parquet(CORPUS, columns=["content"])["content"]:
        body = _FRONT_MATTER.sub("", content, count=1)
        found = segment(body)
        check_invariants(body, found)
        assert headings_between(body, [(f.start, f.end) for f in found.fragments]) == found.headings


@pytest.mark.slow
@pytest.mark.skipif(not PAGING.exists(), reason="the shared paging bench is not here")
def test_fragments_and_headings_hold_all_evidence() -> None:
    contexts = {}
    for line in (PAGING / "documents.jsonl").read_text().splitlines():
        document = json.loads(line)
        body = _FRONT_MATTER.sub("", document["content"], count=1)
        found = segment(body)
        pieces = [*((f.start, f.text) for f in found.fragments)]
        pieces += [(h.start, body[h.start : h.end]) for h in found.headings]
        contexts[document["doc_id"]] = fold("\n".join(text for _, text in sorted(pieces)))
    queries = [json.loads(line) for line in (PAGING / "queries.jsonl").read_text().splitlines()]
    missed = [
        query["query_id"]
        for query in queries
        for item in query["evidence"]
        if not any(fold(span) in contexts[query["doc_id"]] for span in item["any_of"])
    ]
    assert queries
    assert missed == []
