from __future__ import annotations

from importlib.metadata import distribution

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.licences.names import licence_tables, spdx_expression
from tasks.refine.licences.texts import recognise, whole_texts
from tests.support.texts.licence_texts_written import APACHE_NOTICE, ISC, MIT, PHRASES, WHOLE, licence_text

BODY = MIT[MIT.index("Permission") :]


@pytest.mark.parametrize("spdx", WHOLE)
def test_a_whole_text_is_known_with_its_title_and_copyright_lines(spdx: str) -> None:
    read = recognise(WHOLE[spdx])
    assert (read.licence, read.confidence) == (spdx, 0.95)


@pytest.mark.parametrize(
    ("package", "licence"),
    [
        ("aiohttp", "Apache-2.0"), ("click", "BSD-3-Clause"), ("idna", "BSD-3-Clause"), ("anyio", "MIT"),
        ("typer", "MIT"), ("pygments", "BSD-2-Clause"), ("hypothesis", "MPL-2.0"),
    ],
)  # fmt: skip
def test_the_licences_of_packages_that_we_use_are_known(package: str, licence: str) -> None:
    files = [f for f in distribution(package).files or () if f.name.upper().startswith("LICENSE")]
    assert recognise(files[0].read_text()).licence == licence


@pytest.mark.parametrize("spdx", PHRASES)
def test_a_long_licence_is_known_by_its_phrases_at_about_its_length(spdx: str) -> None:
    read = recognise(licence_text(spdx))
    assert (read.licence, read.confidence) == (spdx, 0.8)


def test_line_breaks_quotes_and_letter_case_of_the_terms_do_not_matter() -> None:
    assert recognise(BODY.upper().replace(" ", "\n  > ")).licence == "MIT"


@pytest.mark.parametrize(
    "head",
    [
        "",
        "# The MIT License (MIT)\n\n",
        "Copyright (c) 2019, Ann,\n  Ben and Cat\n(c) 2024 D.\n  D. <d@pots.example>\nAll rights reserved.\n",
        "SPDX-License-Identifier: MIT\n",
    ],
)
def test_titles_and_copyright_lines_are_no_terms(head: str) -> None:
    assert recognise(head + BODY).licence == "MIT"


@pytest.mark.parametrize(
    "more",
    [
        "Additional terms: commercial use is prohibited without the prior written consent of Ann.",
        "Exception: Files in pots/glazed are proprietary and may not be redistributed.",
        "This software may not be used to train machine learning models.",
        "Personal use only.",
        "Call Ann before you throw a pot.",
        "Terms: https://pots.example/eula",
        "Copyright 2026 Ann, under the terms at https://pots.example/eula",
        "Copyright 2026 Ann. A paid seat is needed for every potter.",
        "Licensed under the MIT License.\nThe kilns are not.",
    ],
)
@pytest.mark.parametrize("text", [MIT, ISC, APACHE_NOTICE])
def test_a_text_with_more_terms_is_not_taken_for_its_licence(text: str, more: str) -> None:
    for whole in (f"{text}\n{more}\n", f"{more}\n\n{text}"):
        read = recognise(whole)
        assert (read.licence, "more" in read.note) == (None, True)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("and/or sell", "but not sell"),
        ("to deal\nin the Software without restriction", "to deal in the Software"),
        ("SHALL THE\nAUTHORS OR COPYRIGHT HOLDERS", "SHALL ANN, WHOSE PERMISSION MUST BE ASKED,"),
    ],
)
def test_one_changed_word_of_the_terms_is_another_licence(was: str, becomes: str) -> None:
    assert was in MIT
    assert recognise(MIT.replace(was, becomes)).licence is None


def test_who_is_not_liable_may_be_anybody() -> None:
    assert recognise(MIT.replace("AUTHORS OR COPYRIGHT HOLDERS", "POTTERS OF THE VALLEY")).licence == "MIT"


@pytest.mark.parametrize("words", [60, 9000])
def test_a_text_much_shorter_or_longer_than_its_licence_is_not_taken_for_it(words: int) -> None:
    read = recognise(licence_text("GPL-3.0-only", words))
    assert read.licence is None
    assert "GPL-3.0-only" in read.note


def test_the_words_of_two_licences_are_no_licence_but_what_a_tag_says_of_them() -> None:
    read = recognise(f"{MIT}\n{ISC}")
    assert (read.licence, read.note) == (None, "it holds the words of ISC and MIT")
    assert recognise(f"SPDX-License-Identifier: MIT OR ISC\n{MIT}\n{ISC}").licence == "MIT OR ISC"
    assert recognise(f"SPDX-License-Identifier: MIT\n{ISC}").licence is None


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        (MIT + " You may not extract these materials.", "LicenseRef-Source-Available"),
        (APACHE_NOTICE + " Commons Clause", "LicenseRef-Source-Available"),
        ("PROPRIETARY AND CONFIDENTIAL. Ann's pottery.", "LicenseRef-Proprietary"),
    ],
)
def test_a_refusal_decides_wherever_it_stands(text: str, licence: str) -> None:
    assert recognise(text).licence == licence


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("// SPDX-License-Identifier: Apache-2.0 OR MIT\n// Copyright 2026 Ann\n", "Apache-2.0 OR MIT"),
        ("// SPDX-License-Identifier: MIT\n" + "clay " * 500, None),
        ("Ann's terms: look, but take nothing.\nThe lid: SPDX-License-Identifier: MIT", None),
        ("clay\n" * 9 + "SPDX-License-Identifier: MIT", None),
        ("This pot is licensed under the MIT License.", "MIT"),
        ("Released under the terms of the Apache License 2.0, see the wall.", "Apache-2.0"),
        ("MIT", "MIT"),
        ("This pot is not licensed under the MIT license.", None),
        ("Formerly released under MIT. Now proprietary.", None),
        ("Parts are licensed under the MIT License. Ask before any use of the rest.", None),
        ("Licensed under MIT. Redistribution is forbidden.", None),
        ("Licensed under MIT, subject to the guild's terms.", None),
        ("Licensed under MIT. " + "clay " * 20, None),
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


@given(st.text(st.characters(categories=["Ll", "Lu"]), min_size=1))
def test_whatever_stands_beside_a_whole_text_is_told(words: str) -> None:
    found, rest = whole_texts(f"{MIT}\nBeware: {words}\n")
    assert (found, rest.startswith("Beware")) == (["MIT"], True)


def test_the_tables_speak_of_licences_that_spdx_knows_and_no_phrase_is_empty() -> None:
    tables = licence_tables()
    ours = set(tables["refusals"])
    for spdx in {*tables["names"], *(row["licence"] for row in [*tables["whole"], *tables["texts"]])}:
        assert spdx in ours or spdx_expression(spdx) == spdx
    assert all(row.get("all") or row.get("head") for row in tables["texts"])
    assert all(row["parts"] for row in tables["whole"])
