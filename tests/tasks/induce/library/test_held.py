"""Held libraries: what is written is read again, and files of before are read too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from storage.root import Root
from tasks.induce.library.build import build
from tasks.induce.library.held import HeldLibraries
from tasks.induce.replay.recorded import RecordedReplay
from tasks.induce.skills.actions import GRANULARITIES, Granularity
from tasks.induce.skills.skill import skill_told
from tests.support.induce.runs import mooring

LIBRARY = build(
    "harbour", [mooring("h0", "t0"), mooring("h1", "t1", "Auk", "C3", 55)], RecordedReplay()
)  # fmt: skip


def test_a_library_is_read_as_it_was_written(tmp_path: Path) -> None:
    held = HeldLibraries(Root(tmp_path))
    held.put("harbour", LIBRARY, "these runs")

    assert held.skills("harbour") == LIBRARY.skills
    assert any(skill.near for skill in LIBRARY.skills)
    assert held.made_of() == {"harbour": "these runs"}


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_library_s_granularity_is_kept(tmp_path: Path, granularity: Granularity) -> None:
    held = HeldLibraries(Root(tmp_path))
    library = build("harbour", [mooring("h0", "t0")], RecordedReplay(), granularity=granularity)
    held.put("harbour", library, "these runs")

    assert held.skills("harbour") == library.skills
    assert [skill_told(skill.told()) for skill in library.skills] == library.skills
    assert {skill.granularity for skill in held.skills("harbour")} == {granularity}


def test_a_file_of_before_near_skills_were_named_is_one_of_windows_without_them(tmp_path: Path) -> None:
    held = HeldLibraries(Root(tmp_path))
    held.put("harbour", LIBRARY, "these runs")
    (file,) = (tmp_path / "induced" / "skills").iterdir()
    table = pl.read_parquet(file).drop("near", "granularity").to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(table.replace_schema_metadata({"schema_version": "4"}), file)

    assert held.domains() == {"harbour": 3}
    assert held.skills("harbour") == [replace(skill, near=()) for skill in LIBRARY.skills]
