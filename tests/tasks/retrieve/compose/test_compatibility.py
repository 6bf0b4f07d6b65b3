"""Compatibility: what descriptions say is taken and given, and how it orders the rows of a plan's steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.candidates import POOL, Found, StepCandidates, relevances, select
from tasks.retrieve.compose.compatibility import (
    handed_over,
    io_of,
    io_words,
)
from tasks.retrieve.routing.router import Ranked

TYPES = io_words()["types"]


@pytest.mark.parametrize(
    ("text", "takes", "gives"),
    [
        ("Convert spreadsheets to PDF.", {"table"}, {"document"}),
        ("Markdown to speech, as an MP3", {"document"}, {"audio"}),
        ("Extracts invoices from photos", {"image"}, {"payment"}),
        ("Transcribes podcasts", {"audio", "video"}, {"text"}),
        ("Takes screenshots of anything", {"page"}, {"image"}),
        ("Search flights", {"text"}, {"event"}),
        ("Upload photos", {"image", "file"}, {"text"}),
        ("Calendar integration", {"event"}, {"event"}),
        ("Finds restaurants. Sends Telegram messages.", {"message"}, {"place"}),
        ("", {"text"}, {"text"}),
        ("Does wonders.", {"text"}, {"text"}),
        ("A Claude Code plugin for VS Code, see https://example.com/video", {"text"}, {"text"}),
    ],
)
def test_verbs_tell_on_which_side_a_type_stands(text: str, takes: set[str], gives: set[str]) -> None:
    found = io_of(text)
    assert (found.takes, found.gives) == (takes, gives)


def test_a_step_uses_the_part_of_a_server_that_it_names() -> None:
    server = io_of("Manage calendars, invoices and maps")
    step = io_of("put the meeting there")
    assert server.takes == {"event", "payment", "place"}
    assert server.used_for(step).takes == {"event"}
    assert server.used_for(io_of("play a song")) == server  # it names nothing that the server knows


def test_what_is_given_passes_for_what_is_taken_as_it_is_or_through_a_coercion() -> None:
    assert handed_over({"image"}, {"image"}) == 1
    assert 0.5 < handed_over({"image"}, {"file"}) < 1
    assert handed_over({"price"}, {"text"}) == 0.5
    assert 0 < handed_over({"price"}, {"message"}) < 0.5  # told in words, which are sent
    assert handed_over({"text"}, {"video"}) < 0.5
    assert handed_over({"audio", "table"}, {"video", "table"}) == 1
    assert handed_over(set(), {"text"}) == 0


@given(st.sets(st.sampled_from(sorted(TYPES))), st.sets(st.sampled_from(sorted(TYPES))))
def test_what_is_handed_over_is_a_share_and_all_of_it_if_a_type_is_on_both_sides(
    gives: set[str], takes: set[str]
) -> None:
    share = handed_over(gives, takes)
    assert 0 <= share <= 1
    assert (share == 1) == bool(gives & takes)


def test_all_words_of_the_lists_are_of_known_types() -> None:
    sides = {name for pair in io_words()["implied"].values() for side in pair for name in side.split()}
    assert sides | {name for pair in io_words()["coercions"] for name in pair[:2]} <= TYPES.keys()


WORDS = ("image", "photo", "convert", "to", "pdf", "from", "send", "message", "weather", "bread", "oven", "!")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
CATEGORIES = st.sampled_from((None, "Food", "Food & Drink", "Maps"))
ROWS = st.lists(st.tuples(TEXTS, TEXTS, CATEGORIES), max_size=13)


def row(name: str, description: str, category: str | None, score: float) -> Found:
    told: dict[str, Any] = {
        "doc_id": name, "name": name, "description": description, "category": category,
    }  # fmt: skip
    return told, Ranked(name, score, {})


@st.composite
def plans(draw: st.DrawFn) -> list[StepCandidates]:
    steps = []
    for place in range(draw(st.integers(1, 4))):
        rows = draw(ROWS)
        scores = sorted(
            draw(st.lists(st.floats(-3, 20), min_size=len(rows), max_size=len(rows))), reverse=True
        )
        needs = draw(st.frozensets(st.integers(0, place - 1))) if place else frozenset()
        found = [row(*told, score) for told, score in zip(rows, scores, strict=True)]
        steps.append(StepCandidates(draw(TEXTS), found, needs, gap=draw(st.booleans())))
    return steps


def told(selected: Sequence[Sequence[Found]]) -> list[list[tuple[str, Any]]]:
    return [[(row["name"], row["compatibility"]) for row, _ in rows] for rows in selected]


@given(plans())
def test_alpha_1_keeps_the_order_of_relevance(steps: list[StepCandidates]) -> None:
    selected = select(steps, range(len(steps)), 1)
    assert [[found for _, found in rows] for rows in selected] == [[f for _, f in s.rows] for s in steps]
    assert not [row for rows in selected for row, _ in rows if row["compatibility"] is not None]


@given(plans(), st.floats(0, 1))
def test_what_is_first_has_the_highest_sum_and_ties_keep_their_order(
    steps: list[StepCandidates], alpha: float
) -> None:
    selected = select(steps, range(len(steps)), alpha)
    assert selected == select(steps, range(len(steps)), alpha)
    for step, rows in zip(steps, selected, strict=True):
        assert sorted(one["name"] for one, _ in rows) == sorted(one["name"] for one, _ in step.rows)
        for one, _ in rows:
            assert 0 <= one["relevance"] <= 1
            assert one["compatibility"] is None or 0 <= one["compatibility"] <= 1
        at = {id(found): place for place, (_, found) in enumerate(step.rows)}
        sums = [
            (alpha * one["relevance"] + (1 - alpha) * one["compatibility"], at[id(found)])
            for one, found in rows[:POOL]
            if one["compatibility"] is not None
        ]
        if alpha < 1:
            assert sums == sorted(sums, key=lambda each: (-each[0], each[1]))
        assert [at[id(found)] for _, found in rows[POOL:]] == list(range(POOL, len(rows)))


def picture_plan(needs: frozenset[int], *, gap: bool = False) -> list[StepCandidates]:
    return [
        StepCandidates("take a photo", [row("snap", "Captures photos", "Cameras", 9.0)], gap=gap),
        StepCandidates("bake bread", [row("oven", "Bakes bread", "Food", 9.0)]),
        StepCandidates(
            "keep it",
            [row("cellar", "Stores bread", "Food", 8.0), row("album", "Stores photos", "Cameras", 7.9)],
            needs,
        ),
    ]


def test_a_step_is_compared_with_what_was_chosen_for_what_it_needs() -> None:
    # A step is chosen by what it depends on.
    for needed, kept in ((0, "album"), (1, "cellar")):
        assert select(picture_plan(frozenset({needed})), (0, 1, 2), 0.5)[2][0][0]["name"] == kept
    # A step that depends on none is compared with all before it.
    free: frozenset[int] = frozenset()
    after_all = select(picture_plan(frozenset({0, 1})), (0, 1, 2), 0.5)[2]
    assert told([select(picture_plan(free), (0, 1, 2), 0.5)[2]]) == told([after_all])
    alone = select(picture_plan(free), (2, 0, 1), 0.5)[2]  # the first in another order
    assert [one["compatibility"] for one, _ in alone] == [None, None]
    assert alone[0][0]["name"] == "cellar"
    # Nothing is compared with a gap.
    kept = select(picture_plan(frozenset({0}), gap=True), (0, 1, 2), 0.5)[2]
    assert [one["compatibility"] for one, _ in kept] == [None, None]


def test_relevance_is_the_share_of_the_highest_score() -> None:
    assert relevances([8.0, 4.0, 0.0, -2.0]) == [1, 0.5, 0, 0]
    assert relevances([-1.0, -1.0, -2.0]) == [1, 1, 0]
    assert relevances([]) == []
