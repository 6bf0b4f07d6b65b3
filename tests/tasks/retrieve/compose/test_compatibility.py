"""Compatibility: what descriptions say is taken and given, and how it orders the rows of a plan's steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.candidates import POOL, Found, StepCandidates, relevances, select
from tasks.retrieve.compose.compatibility import (
    compatibility,
    handed_over,
    io_of,
    io_words,
    mean_compatibility,
    used,
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
        ("A Claude Code plugin for VS Code, see https://example.com/video", {"text"}, {"text"}),
    ],
)
def test_verbs_tell_on_which_side_a_type_stands(text: str, takes: set[str], gives: set[str]) -> None:
    found = io_of(text)
    assert (found.takes, found.gives) == (takes, gives)


def test_a_text_that_names_no_type_takes_and_gives_text() -> None:
    assert io_of("").takes == io_of("Does wonders.").gives == {"text"}


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


@given(st.text(max_size=300))
def test_any_text_has_known_types_on_both_sides(text: str) -> None:
    found = io_of(text)
    assert found == io_of(text)
    for side in (found.takes, found.gives):
        assert side
        assert side <= TYPES.keys()


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
SCORES = st.floats(-3, 20, allow_nan=False)


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
        scores = sorted(draw(st.lists(SCORES, min_size=len(rows), max_size=len(rows))), reverse=True)
        needs = draw(st.frozensets(st.integers(0, place - 1))) if place else frozenset()
        found = [row(*told, score) for told, score in zip(rows, scores, strict=True)]
        steps.append(StepCandidates(draw(TEXTS), found, needs, gap=draw(st.booleans())))
    return steps


def order_of(steps: Sequence[StepCandidates]) -> range:
    return range(len(steps))


def scored(steps: Sequence[StepCandidates], score: float) -> list[StepCandidates]:
    """Return the same steps whose rows all have one score."""
    return [
        StepCandidates(s.text, [(told, Ranked(f.doc_id, score, {})) for told, f in s.rows], s.needs, s.gap)
        for s in steps
    ]


def told(selected: Sequence[Sequence[Found]]) -> list[list[tuple[str, Any]]]:
    return [[(row["name"], row["compatibility"]) for row, _ in rows] for rows in selected]


@given(ROWS.filter(lambda rows: len(rows) > 1), TEXTS)
def test_compatibility_is_a_share(rows: list[tuple[str, str, str | None]], step: str) -> None:
    uses = [used(*told, step) for told in rows]
    assert all(0 <= compatibility(a, b) <= 1 for a in uses for b in uses)
    assert mean_compatibility([], uses[0]) is None
    mean = mean_compatibility(uses[1:], uses[0])
    assert mean == pytest.approx(sum(compatibility(a, uses[0]) for a in uses[1:]) / len(uses[1:]))


@given(plans(), st.floats(0, 1))
def test_each_step_keeps_its_rows_with_both_shares(steps: list[StepCandidates], alpha: float) -> None:
    for step, rows in zip(steps, select(steps, order_of(steps), alpha), strict=True):
        names = sorted(told["name"] for told, _ in step.rows)
        assert sorted(told["name"] for told, _ in rows) == names
        for told_row, _ in rows:
            assert 0 <= told_row["relevance"] <= 1
            assert told_row["compatibility"] is None or 0 <= told_row["compatibility"] <= 1


@given(plans())
def test_alpha_1_keeps_the_order_of_relevance(steps: list[StepCandidates]) -> None:
    selected = select(steps, order_of(steps), 1)
    assert [[found for _, found in rows] for rows in selected] == [[f for _, f in s.rows] for s in steps]
    assert not [row for rows in selected for row, _ in rows if row["compatibility"] is not None]


@given(plans(), st.floats(-3, 20))
def test_alpha_0_ignores_relevance(steps: list[StepCandidates], score: float) -> None:
    selected = told(select(steps, order_of(steps), 0))
    assert selected == told(select(scored(steps, score), order_of(steps), 0))
    for rows in selected:
        fits = [fit for _, fit in rows[:POOL] if fit is not None]
        assert fits == sorted(fits, reverse=True)


@given(plans(), st.floats(0, 1))
def test_what_is_first_has_the_highest_sum_and_ties_keep_their_order(
    steps: list[StepCandidates], alpha: float
) -> None:
    selected = select(steps, order_of(steps), alpha)
    assert selected == select(steps, order_of(steps), alpha)
    for step, rows in zip(steps, selected, strict=True):
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


def test_a_step_is_chosen_by_what_it_depends_on() -> None:
    def kept(needs: frozenset[int]) -> str:
        return str(select(picture_plan(needs), (0, 1, 2), 0.5)[2][0][0]["name"])

    assert kept(frozenset({0})) == "album"
    assert kept(frozenset({1})) == "cellar"


def test_a_step_that_depends_on_none_is_compared_with_all_before_it() -> None:
    free: frozenset[int] = frozenset()
    after_all = select(picture_plan(frozenset({0, 1})), (0, 1, 2), 0.5)[2]
    assert told([select(picture_plan(free), (0, 1, 2), 0.5)[2]]) == told([after_all])
    alone = select(picture_plan(free), (2, 0, 1), 0.5)[2]  # the first in another order
    assert [one["compatibility"] for one, _ in alone] == [None, None]
    assert alone[0][0]["name"] == "cellar"


def test_nothing_is_compared_with_a_gap() -> None:
    kept = select(picture_plan(frozenset({0}), gap=True), (0, 1, 2), 0.5)[2]
    assert [one["compatibility"] for one, _ in kept] == [None, None]


def test_relevance_is_the_share_of_the_highest_score() -> None:
    assert relevances([8.0, 4.0, 0.0, -2.0]) == [1, 0.5, 0, 0]
    assert relevances([-1.0, -1.0, -2.0]) == [1, 1, 0]
    assert relevances([]) == []
