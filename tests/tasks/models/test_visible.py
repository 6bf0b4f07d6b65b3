from __future__ import annotations

import sys
import unicodedata
from datetime import UTC, datetime
from xml.etree import ElementTree as Xml
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.models.retry import RetryPolicy, retry_after
from tasks.models.visible import visible

# Any code point, lone surrogates too, and often one of those that matter.
CONTROLS = "\x00\x07\x08\t\n\r\x1b\x7f\x85\x9b\xad\u061c\u200b\u200e\u2028\u202e\u2066\ufeff\ufffe\ud800"
TEXTS = st.text(st.one_of(st.characters(codec=None), st.sampled_from(CONTROLS)), max_size=60)
# Seen, or needed to write Persian, Hindi, emoji and hieroglyphs.
WRITING = {0x200C, 0x200D, *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
HIEROGLYPHS = range(0x13430, 0x13460)
CLASSES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;aGk=\x07rm", r"\x1b]52;c;aGk=\x07rm"),
        ("good\rbad", r"good\rbad"),
        ("one\ntwo\tthree", r"one\ntwo\tthree"),
        ("exe\u202egnp", r"exe\u202egnp"),
        ("\u2066a\u2069", r"\u2066a\u2069"),
        ("\x9b31m", r"\x9b31m"),
        ("half \ud83d", r"half \ud83d"),
        ("\U000e0041tag", r"\U000e0041tag"),
        ("héllo, 面包 خبز \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d🌾", None),
        (r"C:\new", None),
        ("", None),
    ],
)
def test_control_characters_stand_as_escapes_and_writing_stays(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)


def test_a_text_of_many_lines_keeps_line_feeds_and_tabs() -> None:
    assert visible("a\n\tb\r\n\x1bc", lines=True) == "a\n\tb\\r\n\\x1bc"


def test_every_control_and_format_character_is_escaped_but_for_what_writing_needs() -> None:
    everything = map(chr, range(sys.maxunicode + 1))
    kept = {ord(c) for c in everything if visible(c) == c and unicodedata.category(c) in CLASSES}
    assert kept - set(HIEROGLYPHS) == WRITING


@given(TEXTS, st.booleans())
def test_any_text_becomes_one_that_a_terminal_and_xml_take(text: str, lines: bool) -> None:
    shown = visible(text, lines=lines)
    assert not {c for c in shown if unicodedata.category(c) in CLASSES - {"Cf"}} - set("\n\t" * lines)
    assert not any(unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI"} for c in shown)
    assert Xml.fromstring(f"<a>{escape(shown)}</a>").text == (shown or None)  # noqa: S314
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert visible(shown, lines=lines) == shown


@given(TEXTS)
def test_what_is_left_without_the_escapes_is_the_text_itself(text: str) -> None:
    assert visible(text) == "".join(map(visible, text))
    assert all(visible(c) in {c, c.encode("unicode_escape").decode("ascii")} for c in text)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M", "Zs"])))
def test_letters_digits_signs_and_spaces_are_returned_unchanged(text: str) -> None:
    assert visible(text) == text


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
    ],
)
def test_the_servers_word_on_waiting(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOON) == seconds


@given(st.integers(1, 60), st.floats(0, 0.999))
def test_a_wait_of_our_own_lies_between_the_least_and_the_longest(tried: int, draw: float) -> None:
    assert 0.5 <= RetryPolicy(wait_min=0.5, wait_max=20).backoff(tried, draw) <= 20


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"wait_min": -1}, {"server_wait_max": -1}])
def test_a_policy_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(WrongInput):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
