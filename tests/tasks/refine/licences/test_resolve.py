from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import LicenceFile, RawDocument
from tasks.refine.licences.names import Stated, licence_tables, spdx_expression, stated_licence
from tasks.refine.licences.resolve import Licence, nearest_licence_files, resolve_licence, skill_folder
from tasks.refine.text.strict_yaml import Value
from tests.support.texts.licence_texts_written import licence_text

NAMES = [(alias, spdx) for spdx, names in licence_tables()["names"].items() for alias in names]


@pytest.mark.parametrize(("name", "spdx"), NAMES)
def test_every_name_of_the_table_is_understood_with_and_without_the_word_licence(
    name: str, spdx: str
) -> None:
    assert stated_licence(name).licence == spdx
    assert stated_licence(f"The {name.upper()} Licence").licence == spdx


@pytest.mark.parametrize(
    ("value", "licence"),
    [
        ("MIT", "MIT"),
        ("mit license", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache-2.0", "Apache-2.0"),
        ("GPL-3.0", "GPL-3.0-only"),
        ("GPLv3", "GPL-3.0-only"),
        ("gpl-3.0-or-later", "GPL-3.0-or-later"),
        ("GPLv3+", "GPL-3.0-or-later"),
        ("GPLv2+ License", "GPL-2.0-or-later"),
        ("AGPLv3+", "AGPL-3.0-or-later"),
        ("GPL-3.0+", "GPL-3.0-or-later"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("GPL-2.0-or-later WITH Classpath-exception-2.0", "GPL-2.0-or-later WITH Classpath-exception-2.0"),
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
    ],
)
def test_a_stated_licence_becomes_spdx(value: Value, licence: str) -> None:
    assert stated_licence(value) == Stated(licence)


@pytest.mark.parametrize(
    "value",
    [
        None, "", "Unknown", "BSD", "GPL", "Creative Commons", "SD-3-Clause license", "MIT-ish",
        "MIT/Apache-2.0",
        "https://example.org/pots/LICENSE", "free to use", ["MIT", "ISC"], {"kind": "MIT"}, "MIT OR", "LGPL",
        "MIT AND Pottery-1.0", "LicenseRef-Anns", "x" * 301, "MIT " * 50, "()",
    ],
)  # fmt: skip
def test_nothing_is_guessed(value: Value | None) -> None:
    assert stated_licence(value) == Stated(None)


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


MIT, APACHE, ODD = licence_text("MIT"), licence_text("Apache-2.0"), "The potter keeps the kiln."


def resolved(declared: str | None = None, repo: str | None = None, **files: str) -> Licence:
    """Resolve for a skill in `market/kiln`; a file's keyword is its folder's path with `_` for `/`."""
    found = tuple(
        LicenceFile(f"{folder.replace('_', '/')}/LICENSE".lstrip("/"), "0", text)
        for folder, text in files.items()
    )
    raw = RawDocument(
        doc_id="ann/pots/kiln", source="git+x", content=b"x", size=1, raw_hash="0",
        path="market/kiln/SKILL.md", licence_files=found, repo_licence=repo,
    )  # fmt: skip
    return resolve_licence(raw, declared)


def codes(licence: Licence) -> list[str]:
    return [f.code for f in licence.findings]


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        (resolved("ISC", "GPL-3.0", market_kiln=MIT, market=APACHE), ("MIT", "folder-file")),
        (resolved("ISC", "GPL-3.0", market=APACHE), ("ISC", "frontmatter")),
        (resolved(None, "GPL-3.0", market=APACHE, _=MIT), ("Apache-2.0", "parent-file")),
        (resolved(None, "GPL-3.0", _=MIT), ("MIT", "parent-file")),
        (resolved(None, "GPL-3.0"), ("GPL-3.0-only", "repository")),
        (resolved(None, "NOASSERTION"), (None, None)),
        (resolved(None, None), (None, None)),
        (resolved("BSD", "MIT"), ("MIT", "repository")),
        (resolved(None, "MIT", market_oven=APACHE), ("MIT", "repository")),
    ],
)
def test_the_nearest_place_decides(licence: Licence, expected: tuple[str | None, str | None]) -> None:
    assert (licence.licence, licence.rule) == expected
    assert bool(licence.confidence) == bool(licence.licence)


def test_terms_that_nobody_recognises_are_not_overruled_from_further_out() -> None:
    found = resolved(None, "MIT", market_kiln=ODD, market=APACHE)
    assert (found.licence, found.rule, codes(found)) == (None, "folder-file", ["licence.unrecognised"])
    parent = resolved(None, "MIT", market=ODD)
    assert (parent.licence, parent.rule) == (None, "parent-file")


def test_a_file_in_the_skill_s_folder_that_nobody_recognises_outranks_what_is_declared() -> None:
    found = resolved("Apache-2.0", "MIT", market_kiln="Look, but take nothing. Redistribution is forbidden.")
    assert (found.licence, found.rule) == (None, "folder-file")
    assert codes(found) == ["licence.declared", "licence.unrecognised"]
    refused = resolved("Proprietary. LICENSE has complete terms", None, market_kiln=ODD)
    assert (refused.licence, refused.rule) == ("LicenseRef-Proprietary", "frontmatter")


def test_a_refusal_among_several_files_is_not_lost_beside_one_that_nobody_recognises() -> None:
    refusing = ("LICENSE", "PROPRIETARY AND CONFIDENTIAL.")
    assert of_files(refusing, ("LICENSE.extra", ODD)).licence == "LicenseRef-Proprietary"


def test_the_nearest_licence_files_are_those_of_one_folder() -> None:
    files = [LicenceFile(path, "0", "x") for path in ("LICENSE", "market/LICENSE", "market/oven/COPYING")]
    assert nearest_licence_files("market/kiln/SKILL.md", files) == [files[1]]
    assert nearest_licence_files("market/oven/SKILL.md", files) == [files[2]]
    assert nearest_licence_files("shed/SKILL.md", files[1:]) == []


def test_two_places_that_disagree_are_a_finding() -> None:
    assert "licence.conflict" in codes(resolved("ISC", None, market_kiln=MIT))
    assert "licence.conflict" in codes(resolved(None, "ISC", market=MIT))
    assert "licence.conflict" not in codes(resolved("mit", None, market_kiln=MIT))
    assert "licence.conflict" not in codes(
        resolved("GPL-3.0-or-later", None, market_kiln=licence_text("GPL-3.0-only"))
    )


def test_what_is_declared_stays_a_finding_as_written() -> None:
    found = resolved("Potters' Own 1.0").findings
    assert [f.code for f in found] == ["licence.declared", "licence.unknown-name"]
    assert found[0].message == "Potters' Own 1.0"


def test_a_file_pointed_to_that_is_not_at_hand_leaves_the_licence_unknown() -> None:
    found = resolved("Complete terms in LICENSE.txt", "MIT")
    assert (found.licence, found.rule) == (None, None)
    assert codes(found) == ["licence.declared", "licence.file-missing"]
    assert resolved("Complete terms in LICENSE.txt", None, market_kiln=APACHE).licence == "Apache-2.0"


def of_files(*names: tuple[str, str]) -> Licence:
    files = tuple(LicenceFile(name, "0", text) for name, text in names)
    return resolve_licence(
        RawDocument(
            doc_id="a/b", source="dir:b", content=b"x", size=1, raw_hash="0", path="SKILL.md",
            licence_files=files,
        ),
        None,
    )  # fmt: skip


def test_several_files_of_one_folder_all_apply() -> None:
    assert of_files(("LICENSE-MIT", MIT), ("LICENSE-APACHE", APACHE)).licence == "Apache-2.0 AND MIT"
    assert of_files(("LICENSE", MIT), ("COPYING", MIT)).licence == "MIT"
    assert of_files(("LICENSE", MIT), ("LICENSE.extra", ODD)).licence is None


@pytest.mark.parametrize("name", ["license_check.py", "LICENSES.json", "licensing-notes.md"])
def test_a_file_that_only_sounds_like_one_is_none(name: str) -> None:
    assert of_files((name, MIT)) == Licence(None, None, 0.0, ())


def test_a_recognised_file_is_named_with_its_confidence() -> None:
    (found,) = of_files(("LICENSE", MIT)).findings
    assert found.message == "LICENSE: MIT, confidence 0.95"


@pytest.mark.parametrize(
    ("path", "folder"),
    [("a/b/SKILL.md", "a/b"), ("a\\b", "a/b"), ("SKILL.md", ""), (".", ""), (None, ""), ("a/skill.MD", "a")],
)
def test_the_folder_of_a_skill(path: str | None, folder: str) -> None:
    assert skill_folder(path) == folder
