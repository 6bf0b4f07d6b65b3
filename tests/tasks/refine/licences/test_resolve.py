from __future__ import annotations

import pytest

from storage.schemas import LicenceFile, RawDocument
from tasks.refine.licences.resolve import Licence, nearest_licence_files, resolve_licence, skill_folder
from tests.support.texts.licence_texts_written import licence_text

MIT, APACHE, ODD = licence_text("MIT"), licence_text("Apache-2.0"), "The potter keeps the kiln."


def resolved(declared: str | None = None, repo: str | None = None, **files: str) -> Licence:
    """Resolve for a skill in `market/kiln`; a file's keyword is its folder's path with `_` for `/`."""
    found = tuple(
        LicenceFile(f"{folder.replace('_', '/')}/LICENSE".lstrip("/"), "0", text)
        for folder, text in files.items()
    )
    raw = RawDocument(
        doc_id="ann/pots/kiln",
        source="git+x",
        content=b"x",
        size=1,
        raw_hash="0",
        path="market/kiln/SKILL.md",
        licence_files=found,
        repo_licence=repo,
    )
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
            doc_id="a/b",
            source="dir:b",
            content=b"x",
            size=1,
            raw_hash="0",
            path="SKILL.md",
            licence_files=files,
        ),
        None,
    )


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
