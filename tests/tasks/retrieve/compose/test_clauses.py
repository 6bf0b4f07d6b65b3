"""The clauses of a request, and which of them say a step that is written in other words."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.models.encoder import OnnxEncoder
from tasks.retrieve.compose.clauses import JOINS, MOST_CLAUSES, aligned, clauses
from tasks.retrieve.compose.drafts import Draft

WORDS = [
    "weigh", "flour", "Oven", "and", "then", "if", "it", "rises", "as soon as", "2.5", "Mr. Rye", "お茶",
    "'a, b'",
]  # fmt: skip
SIGNS = [" ", ", ", ". ", "; ", ": ", " and ", " - ", " (", ") ", "\n", "? "]


def texts(request: str) -> list[str]:
    return [clause.text for clause in clauses(request)]


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SIGNS)), max_size=12))
def test_clauses_are_parts_of_the_request_in_order(parts: list[tuple[str, str]]) -> None:
    request = "".join(word + sign for word, sign in parts)
    found = clauses(request)
    assert all(request[c.start : c.end] == c.text and c.join in JOINS for c in found)
    assert all(one.end <= other.start for one, other in pairwise(found))


@given(st.text(max_size=200))
def test_any_text_is_cut(text: str) -> None:
    assert all(text[c.start : c.end] == c.text for c in clauses(text))


@given(st.lists(st.sampled_from(["weigh", "flour", "rye", "oven"]), min_size=1, max_size=9))
def test_no_word_but_joining_ones_is_lost(words: list[str]) -> None:
    request = ", ".join(words) + "."
    assert re.findall(r"\w+", " ".join(texts(request))) == words


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("Weigh the flour, then bake it.", ["Weigh the flour", "bake it"]),
        ("Ring me as soon as the dough is ready", ["Ring me", "as soon as the dough is ready"]),
        ("Post 'Rye, spelt and oat' today", ["Post 'Rye, spelt and oat' today"]),
        ("Ask Mr. Rye for 2.5 kg; pay him", ["Ask Mr. Rye for 2.5 kg", "pay him"]),
        ("mill -> oven", ["mill", "oven"]),
        ("粉を量る。パンを焼く。", ["粉を量る", "パンを焼く"]),
        ("", []),
        (" ... ?!", []),
    ],
)
def test_requests_are_cut_where_a_step_may_begin(request_: str, expected: list[str]) -> None:
    assert texts(request_) == expected


def test_words_between_a_sign_and_a_clause_are_in_neither() -> None:
    assert [(c.join, c.text) for c in clauses("Mill it, and then bake it")] == [
        ("start", "Mill it"),
        ("comma", "bake it"),
    ]


def drafted(minilm: OnnxEncoder, task: str, *steps: str) -> Draft:
    found = clauses(task)
    vectors = minilm.encode([*steps, *(clause.text for clause in found)])
    return aligned(task, found, steps, vectors[: len(steps)] @ vectors[len(steps) :].T)


def said(task: str, draft: Draft) -> list[list[str]]:
    return [[task[a:b] for a, b in step.spans] for step in draft.steps]


def test_each_step_has_the_words_that_say_it_and_context_is_left_out(minilm: OnnxEncoder) -> None:
    task = "I run a bakery. Bake two loaves of bread, and then tell my sister about it on Telegram."
    draft = drafted(minilm, task, "bake bread", "send a Telegram message about the bread to the sister")
    assert said(task, draft) == [["Bake two loaves of bread"], ["tell my sister about it on Telegram"]]
    assert [(out.text, out.reason) for out in draft.left_out] == [("I run a bakery", "context")]


def test_steps_keep_the_model_s_order_and_point_to_where_they_are_told(minilm: OnnxEncoder) -> None:
    task = "Ping me on Telegram when the bread is baked; before that, order flour."
    draft = drafted(minilm, task, "order flour", "bake bread", "send a Telegram message")
    assert [step.text for step in draft.steps] == ["order flour", "bake bread", "send a Telegram message"]
    assert draft.steps[0].spans > draft.steps[2].spans
    assert said(task, draft)[2] == ["Ping me on Telegram"]


def test_one_clause_that_says_two_steps_is_shared_whole(minilm: OnnxEncoder) -> None:
    task = "Sync flour orders with Telegram."
    draft = drafted(minilm, task, "list flour orders", "send them to Telegram")
    assert said(task, draft) == [["Sync flour orders with Telegram"]] * 2


def test_a_condition_that_the_model_left_out_stays_with_its_step(minilm: OnnxEncoder) -> None:
    task = "Compare flour prices. If they rose a lot, order three bags."
    draft = drafted(minilm, task, "compare flour prices", "order three bags")
    assert draft.left_out == ()
    assert draft.steps[1].words == "If they rose a lot, order three bags"


def test_a_task_without_words_is_said_by_all_of_it() -> None:
    draft = aligned(" 🥖🥖 ", [], ["bake bread"], np.zeros((1, 0)))
    assert said(" 🥖🥖 ", draft) == [["🥖🥖"]]


@settings(max_examples=150)
@given(data=st.data())
def test_spans_lie_in_the_task_and_are_the_same_or_apart(data: st.DataObject) -> None:
    words = st.sampled_from(
        ["bake", "bread", "if", "it", "rains,", "then", "and", "tea.", "order", "now;", "パン"]
    )
    task = " ".join(data.draw(st.lists(words, min_size=1, max_size=90)))
    texts = data.draw(st.lists(st.text("abe r", min_size=1, max_size=9), min_size=1, max_size=8))
    found = clauses(task)
    seed = data.draw(st.integers(0, 2**32 - 1))
    cosines = np.random.default_rng(seed).uniform(-1, 1, (len(texts), len(found)))

    draft = aligned(task, found, texts, cosines)

    assert [step.text for step in draft.steps] == texts
    for step in draft.steps:
        ends = [place for span in step.spans for place in span]
        assert step.spans
        assert ends == sorted(ends)
        assert ends[0] >= 0
        assert ends[-1] <= len(task)
    for one, other in combinations(draft.steps, 2):
        for (a, b), (c, d) in ((x, y) for x in one.spans for y in other.spans):
            assert (a, b) == (c, d) or b <= c or d <= a
    told = [span for step in draft.steps for span in step.spans]
    for a, b in (out.span for out in draft.left_out):
        assert all(b <= c or d <= a for c, d in told)
    covered = set(told) | {out.span for out in draft.left_out}
    assert all(any(a <= c.start and c.end <= b for a, b in covered) for c in found[:MOST_CLAUSES])
