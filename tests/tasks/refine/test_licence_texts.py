from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from licence_texts_written import PHRASES, licence_text

from tasks.refine.licence_names import licence_tables, spdx_expression
from tasks.refine.licence_texts import recognise


@pytest.mark.parametrize("spdx", PHRASES)
def test_a_licence_is_known_by_its_phrases_at_about_its_length(spdx: str) -> None:
    read = recognise(licence_text(spdx))
    assert (read.licence, read.confidence) == (spdx, 0.95)


def test_line_breaks_quotes_and_letter_case_do_not_matter() -> None:
    assert recognise(licence_text("MIT").upper().replace(" ", "\n  > ")).licence == "MIT"


@pytest.mark.parametrize("words", [60, 900])
def test_a_text_much_shorter_or_longer_than_its_licence_is_not_taken_for_it(words: int) -> None:
    read = recognise(licence_text("MIT", words))
    assert read.licence is None
    assert "MIT" in read.note


def test_the_words_of_two_licences_are_no_licence() -> None:
    read = recognise(f"{licence_text('MIT', 100)}\n{licence_text('Unlicense', 100)}")
    assert read.licence is None
    assert read.note == "it holds the words of MIT and Unlicense"


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        (licence_text("MIT") + " You may not extract these materials.", "LicenseRef-Source-Available"),
        (licence_text("Apache-2.0") + " Commons Clause", "LicenseRef-Source-Available"),
        ("PROPRIETARY AND CONFIDENTIAL. Ann's pottery.", "LicenseRef-Proprietary"),
    ],
)
def test_a_refusal_decides_wherever_it_stands(text: str, licence: str) -> None:
    assert recognise(text).licence == licence


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("// SPDX-License-Identifier: Apache-2.0 OR MIT\n" + "clay " * 500, "Apache-2.0 OR MIT"),
        ("This pot is licensed under the MIT License.", "MIT"),
        ("Released under the terms of the Apache License 2.0, see the wall.", "Apache-2.0"),
        ("MIT", "MIT"),
        ("Licensed under the Potters' Own License.", None),
        ("Licensed under MIT. " + "clay " * 100, None),
        ("", None),
        ("Fire the clay slowly.", None),
    ],
)
def test_a_short_notice_may_name_its_licence(text: str, licence: str | None) -> None:
    assert recognise(text).licence == licence


@given(st.text())
def test_any_text_is_a_licence_with_confidence_or_a_note_says_why_not(text: str) -> None:
    read = recognise(text)
    assert bool(read.licence) == (read.confidence > 0) == (not read.note)


def test_the_tables_speak_of_licences_that_spdx_knows_and_no_phrase_is_empty() -> None:
    tables = licence_tables()
    ours = set(tables["refusals"])
    for spdx in {*tables["names"], *(row["licence"] for row in tables["texts"])}:
        assert spdx in ours or spdx_expression(spdx) == spdx
    assert all(row.get("all") or row.get("head") for row in tables["texts"])
