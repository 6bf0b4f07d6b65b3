from __future__ import annotations

from importlib.metadata import distribution

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.licences.names import licence_tables, spdx_expression
from tasks.refine.licences.texts import recognise, whole_texts
from tests.support.texts.licence_texts_written import APACHE_NOTICE, ISC, MIT, PHRASES, WHOLE, licence_text

OWNERS = "Copyright (c) 2019, Ann,\n  Ben and Cat\n(c) 2024 D.\n  D. <d@pots.example>\nAll rights reserved.\n"
BODY = MIT[MIT.index("Permission") :]


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
    ("text", "licence", "confidence"),
    [
        *((WHOLE[spdx], spdx, 0.95) for spdx in WHOLE),
        *((licence_text(spdx), spdx, 0.8) for spdx in PHRASES),
        *((licence_text("GPL-3.0-only", words), None, 0) for words in (60, 9000)),
        # How a text is broken, its title and its copyright lines are no terms.
        (BODY.upper().replace(" ", "\n  > "), "MIT", 0.95),
        (BODY, "MIT", 0.95),
        (f"# The MIT License (MIT)\n\n{BODY}", "MIT", 0.95),
        (OWNERS + BODY, "MIT", 0.95),
        (f"SPDX-License-Identifier: MIT\n{BODY}", "MIT", 0.95),
        (MIT.replace("AUTHORS OR COPYRIGHT HOLDERS", "POTTERS OF THE VALLEY"), "MIT", 0.95),
        # One changed word is another licence.
        (MIT.replace("and/or sell", "but not sell"), None, 0),
        (MIT.replace("to deal\nin the Software without restriction", "to deal in the Software"), None, 0),
        (MIT.replace("AUTHORS OR COPYRIGHT HOLDERS", "ANN, WHOSE PERMISSION MUST BE ASKED,"), None, 0),
        (f"SPDX-License-Identifier: MIT OR ISC\n{MIT}\n{ISC}", "MIT OR ISC", 0.95),
        (f"SPDX-License-Identifier: MIT\n{ISC}", None, 0),
        # A refusal decides wherever it stands.
        (MIT + " You may not extract these materials.", "LicenseRef-Source-Available", 0.8),
        (APACHE_NOTICE + " Commons Clause", "LicenseRef-Source-Available", 0.8),
        ("PROPRIETARY AND CONFIDENTIAL. Ann's pottery.", "LicenseRef-Proprietary", 0.8),
        # A short notice may name its licence.
        ("// SPDX-License-Identifier: Apache-2.0 OR MIT\n// Copyright Ann\n", "Apache-2.0 OR MIT", 0.95),
        ("// SPDX-License-Identifier: MIT\n" + "clay " * 500, None, 0),
        ("Ann's terms: look, but take nothing.\nThe lid: SPDX-License-Identifier: MIT", None, 0),
        ("clay\n" * 9 + "SPDX-License-Identifier: MIT", None, 0),
        ("This pot is licensed under the MIT License.", "MIT", 0.8),
        ("Released under the terms of the Apache License 2.0, see the wall.", "Apache-2.0", 0.8),
        ("MIT", "MIT", 0.8),
        ("This pot is not licensed under the MIT license.", None, 0),
        ("Formerly released under MIT. Now proprietary.", None, 0),
        ("Parts are licensed under the MIT License. Ask before any use of the rest.", None, 0),
        ("Licensed under MIT. Redistribution is forbidden.", None, 0),
        ("Licensed under MIT, subject to the guild's terms.", None, 0),
        ("Licensed under MIT. " + "clay " * 20, None, 0),
        ("Licensed under the Potters' Own License.", None, 0),
        ("Licensed under MIT. " + "clay " * 100, None, 0),
        ("", None, 0),
        ("Fire the clay slowly.", None, 0),
    ],
)  # fmt: skip
def test_a_text_is_its_licence_s_as_a_whole_by_a_tag_phrases_or_a_notice(
    text: str, licence: str | None, confidence: float
) -> None:
    read = recognise(text)
    assert (read.licence, read.confidence) == (licence, confidence)


def test_a_note_names_what_a_text_holds() -> None:
    assert recognise(f"{MIT}\n{ISC}").note == "it holds the words of ISC and MIT"
    assert "GPL-3.0-only" in recognise(licence_text("GPL-3.0-only", 60)).note


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
