from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.parse.segment.sentences import opens, sentence_spans


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
