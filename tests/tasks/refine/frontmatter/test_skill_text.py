from __future__ import annotations

import pytest

from tasks.refine.frontmatter.skill_text import folder_of, name_of
from tasks.refine.text.strict_yaml import Value


@pytest.mark.parametrize(
    ("doc_id", "path", "folder"),
    [
        ("ann/pots/skills/kiln", "skills/kiln/SKILL.md", "kiln"),
        ("ann/pots/skills/kiln", "skills/kiln", "kiln"),
        ("ann/pots/skills/kiln", "skills\\kiln\\skill.md", "kiln"),
        ("ann/pots", "SKILL.md", "pots"),
        ("ann/pots", ".", "pots"),
        ("ann/pots/kiln", None, "kiln"),
        ("ann--pots--kiln", None, "kiln"),
        ("ann--", None, "ann--"),
    ],
)
def test_the_folder_comes_from_the_path_else_from_the_id(doc_id: str, path: str | None, folder: str) -> None:
    assert folder_of(doc_id, path) == folder


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("kiln-2", []),
        ("töpferei", ["name.not-ascii"]),
        ("技能", ["name.not-ascii"]),
        ("Kiln", ["name.pattern"]),
        ("kiln--fire", ["name.pattern"]),
        ("-kiln", ["name.pattern"]),
        ("kiln fire", ["name.pattern"]),
        ("k" * 64, []),
        ("k" * 65, ["name.too-long"]),
    ],
)
def test_a_name_is_judged_by_the_specification(name: str, codes: list[str]) -> None:
    kept, inferred, found = name_of(name, name)
    assert (kept, inferred) == (name, False)
    assert [f.code for f in found] == codes


def test_a_name_that_differs_from_its_folder_is_found() -> None:
    (found,) = name_of("kiln", "oven")[2]
    assert found.code == "name.folder"
    assert "oven" in found.message


@pytest.mark.parametrize("value", [None, "", " \n", ["kiln"], {"kiln": "x"}])
def test_a_missing_name_is_inferred_from_the_folder(value: Value | None) -> None:
    name, inferred, found = name_of(value, "kiln")
    assert (name, inferred, [f.code for f in found]) == ("kiln", True, ["name.missing"])


def test_a_name_is_kept_on_one_line() -> None:
    assert name_of(" Kiln\n fire\x00 ", "kiln")[0] == "Kiln fire"
