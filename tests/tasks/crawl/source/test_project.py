"""Files at a project's root: installed copies are no sources, and a plugin's licence is its skills'."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.crawl.source.project import Project, project_of
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.world import World
from tests.tasks.crawl.conftest import WorkTree

LOCK = json.dumps({
    "version": 1,
    "skills": {"Sour Mint": {"sourceType": "github"}, "own": {"sourceType": "local"}},
}).encode()  # fmt: skip
PLUGIN = json.dumps({
    "$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json",
    "name": "herbs", "license": "MIT",
}).encode()  # fmt: skip
TEXT = grows("mint", "Water it at dusk.")
FILES = {
    ".claude/skills/sour-mint/SKILL.md": grows("mint"),
    ".agents/skills/own/SKILL.md": grows("own"),
    ".agents/skills/other/SKILL.md": grows("other"),
    "skills/sour-mint/SKILL.md": grows("sour-mint"),
}


def folder(path: Path, files: dict[str, bytes], tree: WorkTree, world: World) -> str:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return f"dir:{path}"


def git(path: Path, files: dict[str, bytes], tree: WorkTree, world: World) -> str:
    for name, content in files.items():
        tree.write(name, content)
    tree.commit()
    return tree.spec


def github(path: Path, files: dict[str, bytes], tree: WorkTree, world: World) -> str:
    (world.find("ann/herbs")[0] or world.repository("ann/herbs")).commit(files)
    return "github:ann/herbs"


@pytest.mark.parametrize("make", [folder, git, github])
def test_a_copy_that_the_lock_names_is_dropped_and_retired(
    make: Callable[..., str], tmp_path: Path, worktree: WorkTree, world: World, crawler: Crawler
) -> None:
    given = tmp_path / "herbs", worktree, world
    spec = make(given[0], FILES, *given[1:])
    assert crawler.crawl(spec).new == 4
    make(given[0], {"skills-lock.json": LOCK}, *given[1:])
    report = crawler.crawl(spec)
    assert (report.retired, report.unchanged, report.failed) == (1, 3, {"installed-copy": 1})
    kept = {doc_id.partition("/herbs/")[2] for doc_id in crawler.held()}
    assert kept == {".agents/skills/own", ".agents/skills/other", "skills/sour-mint"}
    assert crawler.crawl(spec).unchanged == 3
    make(given[0], {"plugin.json": PLUGIN, **dict.fromkeys(FILES, TEXT)}, *given[1:])
    crawler.crawl(spec)
    assert {row["repo_licence"] for row in crawler.raw() if row["content"] == TEXT} == {"MIT"}


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"[]",
        b"[" * 9_999,
        b'{"version":0,"skills":{"a":{}}}',
        b'{"version":1,"skills":[],"license":"MIT"}',
        PLUGIN.replace(b"MIT", b"MIT " * 60),
    ],
)
def test_a_file_of_another_form_says_nothing(file: bytes) -> None:
    assert project_of({"skills-lock.json": file, "plugin.json": file}) == Project()
