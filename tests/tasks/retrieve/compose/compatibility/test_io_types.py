"""I/O types: what descriptions say that something takes and gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.compose.compatibility.io_types import handed_over, io_of
from tasks.retrieve.compose.compatibility.io_words import COERCIONS, IMPLIED, TYPES


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
    sides = {name for pair in IMPLIED.values() for side in pair for name in side.split()}

    assert sides | {name for pair in COERCIONS for name in pair} <= TYPES.keys()
