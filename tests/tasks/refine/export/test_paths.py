from __future__ import annotations

import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.export.paths import FreePaths, file_path

PARTS = st.sampled_from(["a", "A", "b", "b~2", "SKILL.md", "é", "e\u0301"])
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize(
    ("path", "exported"),
    [
        ("scripts/run me (v2).sh", "scripts/run me (v2).sh"),
        ("docs/Größe.md", "docs/Größe.md"),
        (".git/config", "git/config"),
        ("a/.GIT", "a/GIT"),
        (".claude-plugin/plugin.json", "claude-plugin/plugin.json"),
        (".github/.env.example", ".github/.env.example"),
        ("t/[slug]/a?b.md", "t/[slug]/a_b.md"),
        ("a\\..\\..\\b", "a/b"),
        ("nul", "_nul"),
        ("a: b?.txt", "a_ b_.txt".replace(" ", "_")),
        ("line\nbreak", "line_break"),
        ("trailing.", "trailing"),
    ],
)
def test_a_path_is_kept_unless_some_file_system_refuses_it(path: str, exported: str) -> None:
    assert file_path(path) == exported


@given(st.text(min_size=1, max_size=600))
def test_no_path_leads_out_of_its_folder(path: str) -> None:
    parts = file_path(path).split("/")
    assert {"", ".", "..", ".git"}.isdisjoint(part.casefold() for part in parts)
    assert all(len(part.encode()) <= 255 and part == part.strip(" ").rstrip(".") for part in parts)


@given(st.lists(PATHS, max_size=12, unique=True))
def test_every_file_can_be_written_and_none_over_another(paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        free = FreePaths(Path(folder), ["SKILL.md"])
        given = [free.of_file(path) for path in paths]
        for number, path in enumerate(given):
            target = Path(folder) / path
            assert not target.exists()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(str(number), "utf-8")
        folded = [unicodedata.normalize("NFC", path).casefold() for path in [*given, "SKILL.md"]]
        assert len({*folded}) == len(folded)


@given(st.lists(st.tuples(PATHS, st.lists(PATHS, max_size=4, unique=True)), max_size=6))
def test_no_skill_writes_over_another(skills: list[tuple[str, list[str]]]) -> None:
    own = ("SKILL.md", "PROVENANCE.json")
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = FreePaths(Path(folder))
        written: dict[Path, str] = {}
        for number, (path, files) in enumerate(skills):
            mine = Path(folder) / all_of_them.of_folder(path, own)
            mine.mkdir(parents=True, exist_ok=True)
            free = FreePaths(mine, own)
            for name in own:
                assert mine / name not in written
                written[mine / name] = f"{number} {name}"
                (mine / name).write_text(written[mine / name], "utf-8")
            for file in files:
                target = mine / free.of_file(file)
                target.parent.mkdir(parents=True, exist_ok=True)
                assert target not in written
                written[target] = f"{number} {file}"
                target.write_text(written[target], "utf-8")
        assert {path: path.read_text("utf-8") for path in written} == written
