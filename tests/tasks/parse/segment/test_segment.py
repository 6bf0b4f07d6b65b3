from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.parse.segment.blocks import block_tokens
from tasks.parse.segment.headings import Heading, headings_between
from tasks.parse.segment.segment import Fragment, segment
from tasks.parse.segment.sentences import opens, sentence_spans
from tests.support.processes import slow_but
from tests.support.texts.fragments import bodies, check_invariants


def lead_ins(body: str) -> list[tuple[str, str | None]]:
    return [(f.text, f.lead_in) for f in segment(body).fragments]


def test_fragments_carry_everything_about_their_place() -> None:
    body = "# Tea\n\nBoil water. Then:\n\n- pour\n"
    found = segment(body)
    assert found.headings == (Heading(1, "Tea", 0, 5),)
    assert found.fragments == (
        Fragment(0, ("Tea",), None, "prose", 7, 18, "Boil water."),
        Fragment(1, ("Tea",), None, "prose", 19, 24, "Then:"),
        Fragment(2, ("Tea",), "Then:", "list_item", 26, 32, "- pour"),
    )


def prose(*texts: str) -> list[tuple[str, str]]:
    return [("prose", text) for text in texts]


def items(*texts: str) -> list[tuple[str, str]]:
    return [("list_item", text) for text in texts]


CODE, NESTED = "   ```sh\n   heat --now\n   ```", "      ```\n      kettle --on\n      ```"
WHOLE = [
    ("code", "```py\na = 1. B\n\nb: 2\n```"),
    ("code", "    indented\n\n      code"),
    ("table", "| a | b. C |\n|---|---|\n| 1 | 2 |"),
    ("table", "a | b\n--|--\n1 | 2"),
    ("html", "<details>\nOne. Two.\n</details>"),
    ("html", "<!-- one\n\ntwo. Three -->"),
    ("list_item", "-"),
    *prose("| green | 70 |\n| black | 95 |", "|---|---|\n| green | 70 |"),  # without a header
    *prose("> # no heading", "> text\n> ==="),
    *items("- # no heading", "- text\n  ---"),
    *prose("---\nname: tea\ndescription: Brews tea.\n---"),  # front matter that stands twice
]
CUT: list[tuple[str, list[tuple[str, str]]]] = [
    *((f"# Tea\n\n{text}\n\n# End\n", [(block, text)]) for block, text in WHOLE),
    (
        f"1. Heat it\n   slowly.\n\n   Not yet.\n   - low\n   - high\n\n   then wait\n{CODE}\n2. [ ] Serve\n",
        [*items("1. Heat it\n   slowly.\n\n   Not yet.", "- low", "- high", "then wait"), ("code", CODE),
         *items("2. [ ] Serve")],
    ),
    (
        f"1. Boil\n   1. fill it\n{NESTED}\n   2. wait:\n\n          kettle --off\n2. Pour\n",
        [*items("1. Boil", "1. fill it"), ("code", NESTED), *items("2. wait:"),
         ("code", "          kettle --off"), *items("2. Pour")],
    ),
    ("Text.\n~~~\na = 1\n\n# no heading\n\n", [*prose("Text."), ("code", "~~~\na = 1\n\n# no heading")]),
    # A fence that does not match ends where its container does.
    ("```sh\nboil\n```text\nnot code\n", [("code", "```sh\nboil\n```text\nnot code")]),
    ("````md\n```sh\nboil\n```\n````\nPour.", [("code", "````md\n```sh\nboil\n```\n````"), *prose("Pour.")]),
    ("```\nboil\n````\nPour.\n", [("code", "```\nboil\n````"), *prose("Pour.")]),
    ("~~~\nboil\n```\ncool\n~~~\nPour.\n", [("code", "~~~\nboil\n```\ncool\n~~~"), *prose("Pour.")]),
    (
        "- boil\n  ```\n  kettle --on\n- pour\n\nDrink.\n",
        [*items("- boil"), ("code", "  ```\n  kettle --on"), *items("- pour"), *prose("Drink.")],
    ),
    # HTML is kept whole, and Markdown inside it is read.
    (
        "<table>\n<tr><td>tea</td></tr>\n</table>\n\nPour <b>it</b>.\n",
        [("html", "<table>\n<tr><td>tea</td></tr>\n</table>"), *prose("Pour <b>it</b>.")],
    ),
    (
        "<details>\n<summary>More</summary>\n\nBoil. Pour.\n\n</details>\n",
        [("html", "<details>\n<summary>More</summary>"), *prose("Boil.", "Pour."), ("html", "</details>")],
    ),
    ("<!-- never\n\nclosed\n\n# Tea\n", [("html", "<!-- never\n\nclosed\n\n# Tea")]),
    (
        "> One here. Two\n> goes on.\n>\n> - point\n",
        [*prose("> One here.", "Two\n> goes on.\n>"), *items("> - point")],
    ),
    ("[a]: /one\n[b]: /two 'B'\n", prose("[a]: /one", "[b]: /two 'B'")),
    (
        "Bring water to the boil, then\nlet it cool to seventy\ndegrees. Pour it\nslowly. Wait.\n",
        prose("Bring water to the boil, then\nlet it cool to seventy\ndegrees.", "Pour it\nslowly.", "Wait."),
    ),
    # A sentence that announces takes in the prose after it, but not over a heading or a rule.
    (
        "**Note:**\n\nIt is hot. Mind it.\n\nOtherwise\n\nleave it be.",
        prose("**Note:**\n\nIt is hot.", "Mind it.", "Otherwise\n\nleave it be."),
    ),
    (
        "Steps:\n\n# Next\n\nText. More:\n\n---\n\nRest.",
        prose("Steps:", "Text.", "More:\n\n---", "Rest."),
    ),
    # A rule belongs to the text beside it.
    ("Text.\n\n---\n", prose("Text.\n\n---")),
    ("- item\n\n***\n", items("- item\n\n***")),
    ("```\nx\n```\n\n---\n\nText. More.", [("code", "```\nx\n```"), *prose("---\n\nText.", "More.")]),
    ("```\nx\n```\n\n---\n\n- item", [("code", "```\nx\n```"), *items("---\n\n- item")]),
    ("```\nx\n```\n\n---\n\n# Next\n\ny", [("code", "```\nx\n```"), *prose("---", "y")]),
    ("# A\n\n---\n***\n\n```\nx\n```", [*prose("---\n***"), ("code", "```\nx\n```")]),
    # Sentences end in every script.
    (
        "洗米三次。水清了吗？静置一小时！然后：\n\n- 加水\n",
        [*prose("洗米三次。", "水清了吗？", "静置一小时！", "然后："), *items("- 加水")],
    ),
    (
        "اغسل الأرز جيدا. هل الماء صاف؟ اتركه ساعة.",
        prose("اغسل الأرز جيدا.", "هل الماء صاف؟", "اتركه ساعة."),
    ),
    (
        "שטפו את האורז. האם המים צלולים? חכו שעה.",
        prose("שטפו את האורז.", "האם המים צלולים?", "חכו שעה."),
    ),
    ("쌀을 씻으세요. 물이 맑습니까? 기다리세요.", prose("쌀을 씻으세요.", "물이 맑습니까?", "기다리세요.")),
    ("", []),
    (" \n\t\n", []),
    ("\ufeff# x", prose("\ufeff# x")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), CUT)
def test_a_body_is_cut_into_sentences_items_and_whole_blocks(
    body: str, expected: list[tuple[str, str]]
) -> None:
    found = segment(body)
    check_invariants(body, found)
    assert [(f.block, f.text) for f in found.fragments] == expected


def test_text_below_the_deepest_nesting_is_kept() -> None:
    assert "".join(f.text for f in segment("> " * 40 + "deep").fragments).endswith("deep")


def test_heading_path_follows_the_levels_up_to_six_marks() -> None:
    body = "a\n# One\nb\n## Two ##\nc\n\nThree\n-----\n###### **Deep**\nd\n# Four\n\n####### Seven\n"
    assert [(f.text, f.heading_path) for f in segment(body).fragments] == [
        ("a", ()), ("b", ("One",)), ("c", ("One", "Two")), ("d", ("One", "Three", "**Deep**")),
        ("####### Seven", ("Four",)),
    ]  # fmt: skip


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


def test_lead_in_is_what_announces_a_list_code_table_or_html() -> None:
    body = (
        "Use this when\n\n- cold\n- wet\n\nRun:\n```\ngo\n```\n```\nagain\n```\n"
        "Sizes：\n\n| a |\n|---|\n\nLook:\n\n<br>\n\nNo announcement.\n\n- last\n"
    )
    expected = (None, "Use this when", "Use this when", None, "Run:", None, None, "Sizes：", None, "Look:")
    assert [lead for _, lead in lead_ins(body)] == [*expected, None, None]


def test_nested_lead_in_is_the_parent_item_or_what_announced_its_list() -> None:
    body = (
        "Do:\n- first:\n  - a\n    - aa\n  - b\n\n  ```\n  x\n  ```\n"
        "- second\n  - c\n- third:\n  ```\n  y\n  ```\n"
    )
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
    assert lead_ins("1. Run:\n\n```\ngo\n```\n") == [("1. Run:", None), ("```\ngo\n```", "1. Run:")]


def test_lead_in_and_path_are_cut_where_hostile_text_would_fill_the_index() -> None:
    found = segment(f"# {'t' * 5000}\n\n{'x' * 5000}:\n\n- item\n")
    assert found.headings[0].title == "t" * 5000
    assert found.fragments[1].heading_path == ("t" * 300,)
    assert found.fragments[1].lead_in == "x" * 999 + ":"


_NAMES = {"paragraph_open": "paragraph", "heading_open": "heading", "table_open": "table"}


@given(body=bodies)
@settings(max_examples=150)
@example("\x0b\n===\n===")
@example("\x0b\n\n===\n===")
@example("    \x0b\n===\n===")
@example("text \x0b\n\n# Title \x0b")
@example("- ---\n- ***\n> ***")
@example("> a\n>\n> ```\n> x\n> ```\n>\n")
@example("\x0b\n\x0c\n---\n# \x0b")
@example("- a\n\x0b\n===\n\n===\n===")
@example("a\r\n===\r# b\n\r\n    c\n--")
def test_every_character_lies_in_a_fragment_or_in_a_heading_between_fragments(body: str) -> None:
    found = segment(body)
    check_invariants(body, found)
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


HOSTILE: dict[str, Callable[[], str]] = {
    "backticks": lambda: "`" * 100_000,
    "nested items": lambda: "".join(" " * (2 * n) + "- item\n" for n in range(400)),
    "lines": lambda: "a\n" * 50_000,
    "bold marks": lambda: "**" * 200_000,
    "tables": lambda: ("a|" * 180 + "\n" + "-|" * 180 + "\n" + "x\n" * 360 + "\n") * 50,
    "attributes": lambda: "<a" + " b" * 200_000,
    "bold": lambda: "**a" * 100_000,
}
SLOW: dict[str, Callable[[], str]] = {
    "runs of backticks": lambda: " ".join("`" * n for n in range(1, 450)),
    "nested quotes": lambda: "> " * 50_000 + "a",
    "nested lists": lambda: "- " * 50_000,
    "sentences": lambda: "a b. C " * 50_000,
    "brackets": lambda: "(" * 200_000 + "a. B" + ")" * 200_000,
    "definitions": lambda: "[a]: b\n" * 10_000,
    "a heading's marks": lambda: "# " + " " * 500_000 + "#",
    "full stops": lambda: "." * 300_000 + " A",
    "openers": lambda: "a:\n\n" * 10_000,
    "blank lines": lambda: "\n" * 300_000,
    "rules": lambda: "- - -\n" * 20_000,
}


@pytest.mark.parametrize("name", slow_but(HOSTILE, [*HOSTILE, *SLOW]))
@pytest.mark.timeout(60)
def test_hostile_text_takes_seconds_at_most(name: str) -> None:
    body = {**HOSTILE, **SLOW}[name]()
    check_invariants(body, segment(body))


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Use a tool, e.g. Docker or i.e. Podman, as usual.",
        "Compare it vs. The Baseline or approx. 3 of them.",
        "Ask Dr. Ahn or J. R. Moss about Fig. 3 and No. 7.",
        "Version v1.2.3 needs 2.5 GB of RAM.",
        "Open notes/PLAN.md and app.config.js first.",
        "See https://example.org/a.b?c=d. for more",
        "Wait... then go on",
        "Run `first. Second` in one go.",
        "Run ``a ` first. Second`` in one go.",
        "Run `open and ``first. Second`` in one go.",
        "Keep (a [b. C] d. E) whole.",
        "Keep going (it may ask. Say yes!) until the end.",
        "He types “Stop. Now!” and waits.",
        'Say "Go on. Please" to it.',
        "**Never skip this. Not even once**, please.",
        "**Always.** Check the seal.",
        "Step 2. Fill the tank.",
        "1. Fill the tank.",
        "A soft line that\ngoes on here\nand ends.",
        "Das gilt z.B. Montags und d.h. Heute.",
        "Cook the rice. And stir it.",
        "Cook the rice. or the beans. E.g. Basmati.",
        "3.5. is odd",
        "a.b",
        "...",
    ],
)
def test_is_one_sentence(text: str) -> None:
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"Run \`no. Code` at all", [r"Run \`no.", "Code` at all"]),
        ("(" + "long " * 50 + "it. Then) go", ["(" + "long " * 50 + "it.", "Then) go"]),
        ("Leave [it open. Then go", ["Leave [it open.", "Then go"]),
        ("Boil water. Add salt!  Serve?", ["Boil water.", "Add salt!", "Serve?"]),
        ("Read PLAN.md. Then start.", ["Read PLAN.md.", "Then start."]),
        ("Use nuts, seeds, etc. Then mix.", ["Use nuts, seeds, etc.", "Then mix."]),
        ("It is at v1.2.3. Update it.", ["It is at v1.2.3.", "Update it."]),
        ("He said “go.” Then he left.", ["He said “go.”", "Then he left."]),
        ("It is **done.** Now rest.", ["It is **done.**", "Now rest."]),
        ("(All of it.) Now rest.", ["(All of it.)", "Now rest."]),
        ("Do it. `make` helps. 3 times.", ["Do it.", "`make` helps.", "3 times."]),
        ("*Now*. [Go](x). 🎉 Done.", ["*Now*.", "[Go](x).", "🎉 Done."]),
        ("先洗米。再煮饭！好吗？好", ["先洗米。", "再煮饭！", "好吗？", "好"]),
        ("他说“好。”然后走了。", ["他说“好。”", "然后走了。"]),
        ("Сначала вода. Потом соль.", ["Сначала вода.", "Потом соль."]),
        ("¿Listo? ¡Vamos! Sí.", ["¿Listo?", "¡Vamos!", "Sí."]),
        ("Pick option B. Then go.", ["Pick option B.", "Then go."]),
        ("Is it on? No. Try again.", ["Is it on?", "No.", "Try again."]),
        ("Loading... Wait here.", ["Loading...", "Wait here."]),
        ("**Input:** rice\n**Output:** a meal", ["**Input:** rice", "**Output:** a meal"]),
        ("**Input**: rice\n**Output**: a meal", ["**Input**: rice", "**Output**: a meal"]),
        ("hard break  \nnext line", ["hard break", "next line"]),
        ("hard break\\\nnext line", ["hard break\\", "next line"]),
        ("• warm\n• dry", ["• warm", "• dry"]),
        ("✅ warm\r\n❌ dry", ["✅ warm", "❌ dry"]),
        ("[a]: /one\n[b]: /two", ["[a]: /one", "[b]: /two"]),
        ("> One here. Two\n> goes on. Three.", ["> One here.", "Two\n> goes on.", "Three."]),
        ("One here.\n> Two here.", ["One here.", "> Two here."]),
    ],
)  # fmt: skip
def test_cuts_between_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(text=st.one_of(st.text(), st.text(alphabet='aB .!?。`*"()[]\n>:1-\\')))
def test_no_character_is_lost_between_sentences(text: str) -> None:
    at = 0
    for start, end in sentence_spans(text):
        assert not text[at:start].strip()
        assert text[start:end] == text[start:end].strip() != ""
        at = end
    assert not text[at:].strip()


ANNOUNCES = [
    "Do this:", "**Note:**", "**Note**:", "步骤：", "> **Why:**\n>", "Use this when", "Stop if…",
    "Otherwise,",
]  # fmt: skip
NOTHING = ["Do this.", "Note: it is late", "We will, otherwise.", "What a motif", "`key:` is set", ""]


@pytest.mark.parametrize("text", [*ANNOUNCES, *NOTHING])
def test_a_colon_or_a_conditional_opener_announces_what_follows(text: str) -> None:
    assert opens(text) == (text in ANNOUNCES)
