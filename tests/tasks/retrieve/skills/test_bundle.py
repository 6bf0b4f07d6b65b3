from __future__ import annotations

import pytest

from tasks.retrieve.skills.bundle import ServedBundle, ServedFile
from tasks.retrieve.skills.skill_file import SkillFile

MOST_FILES, MOST_BYTES = 512, 16 * 1024 * 1024


def resources(sizes: list[int]) -> object:
    skill = SkillFile(b"", {"name": "bread"}, mended=False)
    files = {f"{number}.txt": ServedFile(size, "0" * 64, lambda: b"") for number, size in enumerate(sizes)}
    return ServedBundle("local/bread", skill, {}, files).entry()["resources"]


@pytest.mark.parametrize("sizes", [[1] * MOST_FILES, [MOST_BYTES]])
def test_a_skill_within_the_limits_is_listed_file_by_file(sizes: list[int]) -> None:
    listed = resources(sizes)
    assert isinstance(listed, list)
    assert [file["size"] for file in listed] == sizes


@pytest.mark.parametrize("sizes", [[1] * (MOST_FILES + 1), [MOST_BYTES, 1]])
def test_a_skill_beyond_them_is_dynamic(sizes: list[int]) -> None:
    assert resources(sizes) == "dynamic"
