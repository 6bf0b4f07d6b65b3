from __future__ import annotations

from importlib.metadata import distribution

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.schemas import LicenceFile, RawDocument
from tasks.refine.licences.names import Stated, licence_tables, spdx_expression, stated_licence
from tasks.refine.licences.policy import (
    EXPORT_POLICY,
    SERVE_POLICY,
    LicencePolicy,
    count_classes,
    licence_class,
    licence_classes,
    licence_policy,
    require_classes,
)
from tasks.refine.licences.resolve import Licence, resolve_licence
from tasks.refine.licences.texts import recognise, whole_texts
from tasks.refine.text.strict_yaml import Value
from tests.support.texts.licence_texts_written import APACHE_NOTICE, ISC, MIT, PHRASES, WHOLE, licence_text

NAMES = [(alias, spdx) for spdx, names in licence_tables()["names"].items() for alias in names]


@pytest.mark.parametrize(("name", "spdx"), NAMES)
def test_every_name_of_the_table_is_understood_with_and_without_the_word_licence(
    name: str, spdx: str
) -> None:
    assert stated_licence(name).licence == spdx
    assert stated_licence(f"The {name.upper()} Licence").licence == spdx


GPL2_CP = "GPL-2.0-or-later WITH Classpath-exception-2.0"


@pytest.mark.parametrize(
    ("value", "licence"),
    [
        ("MIT", "MIT"),
        ("mit license", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("GPL-3.0", "GPL-3.0-only"),
        ("GPLv3", "GPL-3.0-only"),
        ("gpl-3.0-or-later", "GPL-3.0-or-later"),
        ("GPLv3+", "GPL-3.0-or-later"),
        ("GPLv2+ License", "GPL-2.0-or-later"),
        ("AGPLv3+", "AGPL-3.0-or-later"),
        ("GPL-3.0+", "GPL-3.0-or-later"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        (GPL2_CP, GPL2_CP),
        ("https://opensource.org/licenses/MIT", "MIT"),
        ("https://spdx.org/licenses/ISC.html", "ISC"),
        ("https://creativecommons.org/licenses/by-nc-sa/4.0/deed.en", "CC-BY-NC-SA-4.0"),
        ("http://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("http://www.apache.org/licenses/LICENSE-2.0", "Apache-2.0"),
        ("Proprietary. Ask Ann.", "LicenseRef-Proprietary"),
        ("© 2026 Ann. All rights reserved", "LicenseRef-Proprietary"),
        ("UNLICENSED", "LicenseRef-Proprietary"),
        ("Unlicense", "Unlicense"),
        (["MIT"], "MIT"),
        ({"type": "MIT", "url": "x"}, "MIT"),
        # Nothing is guessed.
        *(
            (value, None)
            for value in (
                None, "", "Unknown", "BSD", "GPL", "Creative Commons", "SD-3-Clause license", "MIT-ish",
                "MIT/Apache-2.0", "https://example.org/pots/LICENSE", "free to use", ["MIT", "ISC"],
                {"kind": "MIT"}, "MIT OR", "LGPL", "MIT AND Pottery-1.0", "LicenseRef-Anns", "x" * 301,
                "MIT " * 50, "()",
            )
        ),
    ],
)  # fmt: skip
def test_a_stated_licence_becomes_spdx_or_nothing(value: Value | None, licence: str | None) -> None:
    assert stated_licence(value) == Stated(licence)


@pytest.mark.parametrize(
    ("value", "licence"),
    [
        ("Complete terms in LICENSE.txt", None),
        ("SEE LICENSE IN LICENSE", None),
        ("MIT. See LICENSE for what you may not do", None),
        ("MIT, see LICENSE for commercial use", None),
        ("LICENSE", None),
        ("Apache-2.0. See LICENSE for complete terms.", "Apache-2.0"),
        ("Proprietary. LICENSE.txt has complete terms", "LicenseRef-Proprietary"),
        ("(MIT AND CC-BY-SA-4.0). See LICENSE-MIT and LICENSE-CC", "MIT AND CC-BY-SA-4.0"),
    ],
)
def test_a_value_may_leave_it_to_a_file(value: str, licence: str | None) -> None:
    assert stated_licence(value) == Stated(licence, points_to_file=True)


@given(st.text())
def test_what_is_understood_is_an_expression_that_stays_what_it_is(text: str) -> None:
    licence = stated_licence(text).licence
    assert licence is None or spdx_expression(licence) == licence


APACHE, ODD = licence_text("Apache-2.0"), "The potter keeps the kiln."


def resolved(declared: str | None, repo: str | None, *files: tuple[str, str]) -> Licence:
    """Resolve for a skill in `market/kiln`, given the paths and texts of licence files."""
    raw = RawDocument(
        doc_id="ann/pots/kiln", source="git+x", content=b"x", size=1, raw_hash="0",
        path="market/kiln/SKILL.md", repo_licence=repo,
        licence_files=tuple(LicenceFile(path, "0", text) for path, text in files),
    )  # fmt: skip
    return resolve_licence(raw, declared)


HERE, AND, ABOVE, TOP = "market/kiln/LICENSE", "market/kiln/COPYING", "market/LICENSE", "LICENSE"
CLOSED = "PROPRIETARY AND CONFIDENTIAL."
IN_FILE = "Complete terms in LICENSE.txt"
REFUSED = "LicenseRef-Proprietary"
FILE, FRONT, PARENT, FORGE = "folder-file", "frontmatter", "parent-file", "repository"
GPL = licence_text("GPL-3.0-only")
FORBIDDING = "Look, but take nothing. Redistribution is forbidden."


@pytest.mark.parametrize(
    ("found", "licence", "rule", "codes"),
    [
        # The nearest place decides.
        (resolved("ISC", "GPL-3.0", (HERE, MIT), (ABOVE, APACHE)),
         "MIT", FILE, "declared recognised conflict"),
        (resolved("ISC", "GPL-3.0", (ABOVE, APACHE)), "ISC", FRONT, "declared"),
        (resolved(None, "GPL-3.0", (ABOVE, APACHE), (TOP, MIT)), "Apache-2.0", PARENT, "recognised conflict"),
        (resolved(None, "GPL-3.0", (TOP, MIT)), "MIT", PARENT, "recognised conflict"),
        (resolved(None, "GPL-3.0"), "GPL-3.0-only", FORGE, ""),
        (resolved(None, "NOASSERTION"), None, None, ""),
        (resolved(None, None), None, None, ""),
        (resolved("BSD", "MIT"), "MIT", FORGE, "declared unknown-name"),
        (resolved(None, "MIT", ("market/oven/LICENSE", APACHE)), "MIT", FORGE, ""),
        # Terms that nobody recognises are not overruled from further out, nor by what is declared.
        (resolved(None, "MIT", (HERE, ODD), (ABOVE, APACHE)), None, FILE, "unrecognised"),
        (resolved(None, "MIT", (ABOVE, ODD)), None, PARENT, "unrecognised"),
        (resolved("Apache-2.0", "MIT", (HERE, FORBIDDING)), None, FILE, "declared unrecognised"),
        (resolved("Proprietary. See LICENSE", None, (HERE, ODD)), REFUSED, FRONT, "declared unrecognised"),
        # Several files of one folder all apply.
        (resolved(None, None, (HERE, MIT), (AND, APACHE)),
         "Apache-2.0 AND MIT", FILE, "recognised recognised"),
        (resolved(None, None, (HERE, MIT), (AND, MIT)), "MIT", FILE, "recognised recognised"),
        (resolved(None, None, (HERE, MIT), (AND, ODD)), None, FILE, "recognised unrecognised"),
        (resolved(None, None, (HERE, CLOSED), (AND, ODD)), REFUSED, FILE, "recognised unrecognised"),
        # A difference that the words "only" and "or later" make is no conflict.
        (resolved(None, "ISC", (ABOVE, MIT)), "MIT", PARENT, "recognised conflict"),
        (resolved("mit", None, (HERE, MIT)), "MIT", FILE, "declared recognised"),
        (resolved("GPL-3.0-or-later", None, (HERE, GPL)), "GPL-3.0-only", FILE, "declared recognised"),
        # A file that is pointed to and not at hand leaves the licence unknown.
        (resolved(IN_FILE, "MIT"), None, None, "declared file-missing"),
        (resolved(IN_FILE, None, (HERE, APACHE)), "Apache-2.0", FILE, "declared recognised"),
        # What only sounds like a licence file is none.
        *(
            (resolved(None, None, (f"market/kiln/{name}", MIT)), None, None, "")
            for name in ("license_check.py", "LICENSES.json", "licensing-notes.md")
        ),
    ],
)  # fmt: skip
def test_the_nearest_place_decides_and_every_contradiction_is_a_finding(
    found: Licence, licence: str | None, rule: str | None, codes: str
) -> None:
    assert (found.licence, found.rule) == (licence, rule)
    assert [f.code for f in found.findings] == [f"licence.{code}" for code in codes.split()]


def test_a_finding_cites_what_was_declared_and_names_the_file_that_was_read() -> None:
    assert resolved("Potters' Own 1.0", None).findings[0].message == "Potters' Own 1.0"
    assert resolved(None, None, (HERE, MIT)).findings[0].message == f"{HERE}: MIT, confidence 0.95"


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("MIT", "allow"),
        ("GPL-3.0-only", "metadata-only"),
        ("CC-BY-NC-4.0", "metadata-only"),
        ("LicenseRef-Proprietary", "deny"),
        ("LicenseRef-Source-Available", "deny"),
        ("MIT AND Apache-2.0", "allow"),
        ("MIT AND GPL-3.0-only", "metadata-only"),
        ("MIT OR GPL-3.0-only", "allow"),
        ("MIT AND LicenseRef-Proprietary", "deny"),
        ("(MIT OR LicenseRef-Proprietary) AND ISC", "allow"),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "metadata-only"),
        ("Apache-2.0 WITH LLVM-exception", "allow"),
        (None, "metadata-only"),
        ("", "metadata-only"),
        ("MIT AND", "metadata-only"),
    ],
)
def test_the_class_of_a_licence_when_passing_it_on(licence: str | None, expected: str) -> None:
    assert licence_class(licence, EXPORT_POLICY) == expected
    # What is in neither list may be answered from.
    assert licence_class(licence, SERVE_POLICY) == ("deny" if expected == "deny" else "allow")


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        ((), ("GPL-2.0-only",), "deny"),
        ((), ("GPL-2.0-only WITH Classpath-exception-2.0",), "deny"),
        (("GPL-2.0-only WITH Classpath-exception-2.0",), ("GPL-2.0-only",), "allow"),
        (("GPL-2.0-only",), ("GPL-2.0-only WITH Classpath-exception-2.0",), "deny"),
        ((), (), "metadata-only"),
    ],
)
def test_an_exception_goes_with_its_licence_unless_it_is_listed_itself(
    allow: tuple[str, ...], deny: tuple[str, ...], expected: str
) -> None:
    policy = LicencePolicy(allow, deny)
    assert licence_class("GPL-2.0-only WITH Classpath-exception-2.0", policy) == expected


def test_a_licence_that_one_list_names_leaves_the_default_of_the_other() -> None:
    assert licence_policy(None, None, unknown="metadata-only", other="metadata-only") == EXPORT_POLICY
    assert licence_policy(None, None, unknown="allow", other="allow") == SERVE_POLICY
    strict = licence_policy(None, ["mit"], unknown="allow", other="allow")
    assert (strict.deny, "MIT" in strict.allow, "ISC" in strict.allow) == (("MIT",), False, True)
    mild = licence_policy(["LicenseRef-Proprietary"], None, unknown="allow", other="allow")
    assert (mild.allow, mild.deny) == (("LicenseRef-Proprietary",), ("LicenseRef-Source-Available",))


@pytest.mark.parametrize("name", ["Apache 2", "FOO-1.0", "MIT OR ISC", "MIT AND", "()", "", " "])
def test_what_spdx_does_not_know_is_refused_by_name(name: str) -> None:
    with pytest.raises(WrongInput, match=r"licences_deny: .* is no SPDX identifier"):
        licence_policy(None, ["ISC", name], unknown="allow", other="allow")


def test_every_class_is_counted() -> None:
    licences = pl.Series(["MIT", None, "MIT", "GPL-3.0-only"])
    policy = LicencePolicy(unknown="allow")
    assert licence_classes(licences, policy).to_list() == ["allow", "allow", "allow", "metadata-only"]
    assert count_classes(licences, EXPORT_POLICY) == {"allow": 2, "metadata-only": 2, "deny": 0}
    assert count_classes(pl.Series([], dtype=pl.String), EXPORT_POLICY) == {
        "allow": 0, "metadata-only": 0, "deny": 0,
    }  # fmt: skip


def test_contradictions_and_unknown_classes_are_refused() -> None:
    with pytest.raises(WrongInput, match="both allowed and denied"):
        licence_policy(["MIT"], ["mit"], unknown="allow", other="allow")
    with pytest.raises(WrongInput, match="perhaps"):
        LicencePolicy(unknown="perhaps")  # type: ignore[arg-type]
    with pytest.raises(WrongInput, match="never"):
        LicencePolicy(other="never")  # type: ignore[arg-type]
    with pytest.raises(WrongInput, match="choose one of allow, metadata-only, deny"):
        require_classes(["allow", "some"])


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
