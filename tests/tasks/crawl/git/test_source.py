from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import SourceError
from storage.schemas import Dropped, RawDocument
from tasks.crawl.git.source import GitSource, make_repository
from tests.support.crawl.crawling import opened

if TYPE_CHECKING:
    from conftest import WorkTree


def documents(spec: str) -> list[RawDocument]:
    return [row for row in opened(spec).read() if isinstance(row, RawDocument)]


def dropped(spec: str) -> list[Dropped]:
    return [row for row in opened(spec).read() if isinstance(row, Dropped)]


def test_a_skill_carries_its_bytes_and_where_they_come_from(worktree: WorkTree) -> None:
    text = b"\xef\xbb\xbf---\r\nname: mint\r\n---\r\nPick\x00 it. \xff\n"
    worktree.write("skills/mint/SKILL.md", text)
    worktree.write(".gitattributes", "* text eol=lf\n")
    worktree.git("config", "core.autocrlf", "false")
    (worktree.path / ".gitattributes").unlink()
    commit = worktree.commit()
    (document,) = documents(worktree.spec)
    assert document == RawDocument(
        doc_id="local/herbs/skills/mint", source=worktree.spec, content=text, size=len(text),
        raw_hash=hashlib.sha256(text).hexdigest(), repo="local/herbs", ref="HEAD", commit=commit,
        tree_sha=worktree.git("rev-parse", "HEAD:skills/mint"), path="skills/mint/SKILL.md",
        url=worktree.path.as_uri(), files=(),
    )  # fmt: skip
    assert opened(worktree.spec).version() == commit


@pytest.mark.parametrize("name", ["SKILL.md", "skill.md", "Skill.MD"])
@pytest.mark.parametrize("folder", ["", "a", "a/b c/ü"])
def test_every_letter_case_and_depth_is_found(worktree: WorkTree, name: str, folder: str) -> None:
    worktree.write(f"{folder}/{name}".lstrip("/"))
    worktree.commit()
    (document,) = documents(worktree.spec)
    assert document.doc_id == f"local/herbs/{folder}".rstrip("/")
    assert document.path == f"{folder}/{name}".lstrip("/")


def test_licences_are_those_of_the_folder_and_of_every_folder_above(worktree: WorkTree) -> None:
    for path in ["LICENSE", "a/Licence.txt", "a/b/SKILL.md", "a/b/COPYING", "c/LICENSE", "a/b/sub/LICENSE"]:
        worktree.write(path, b"terms of " + path.encode() + b" \xff")
    worktree.commit()
    (document,) = documents(worktree.spec)
    assert [licence.path for licence in document.licence_files] == ["a/b/COPYING", "a/Licence.txt", "LICENSE"]
    assert document.licence_files[2].text == "terms of LICENSE \ufffd"
    assert document.licence_files[2].sha256 == hashlib.sha256(b"terms of LICENSE \xff").hexdigest()


def test_links_are_recorded_and_never_followed(worktree: WorkTree) -> None:
    worktree.write("real/SKILL.md")
    worktree.write("real/notes.md")
    for path, target in {
        "linked/SKILL.md": "../real/SKILL.md",
        "folder": "real",
        "real/alias.md": "notes.md",
        "real/secrets": "/etc",
        "outside": "../elsewhere",
        "README.md": "real/notes.md",
    }.items():
        (worktree.path / path).parent.mkdir(exist_ok=True)
        (worktree.path / path).symlink_to(target)
    worktree.commit()
    (document,) = documents(worktree.spec)
    assert [(f.code, f.severity, f.message.split()[0]) for f in document.findings] == [
        ("bundle.symlink", "warning", "real/alias.md"),
        ("bundle.symlink", "warning", "real/secrets"),
    ]
    assert [f.path for f in document.files or ()] == ["notes.md"]
    assert [(d.doc_id, d.reason, d.detail) for d in dropped(worktree.spec)] == [
        ("local/herbs/folder", "symlink", "folder -> real"),
        ("local/herbs/linked", "symlink", "linked/SKILL.md -> ../real/SKILL.md"),
        ("local/herbs/outside", "symlink", "outside -> ../elsewhere"),
    ]


def test_a_submodule_is_recorded_once_and_not_fetched(
    worktree: WorkTree, make_worktree: Callable[[str], WorkTree]
) -> None:
    other = make_worktree("other")
    other.write("deep/SKILL.md")
    other.commit()
    worktree.write("SKILL.md")
    worktree.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other.path.as_uri(), "lib/other"
    )
    worktree.commit()
    assert [(d.doc_id, d.reason, d.detail) for d in dropped(worktree.spec)] == [
        ("local/herbs/lib/other", "submodule", "lib/other")
    ]
    assert [d.doc_id for d in documents(worktree.spec)] == ["local/herbs"]


def test_a_branch_a_tag_and_a_commit_can_be_named(worktree: WorkTree) -> None:
    worktree.write("SKILL.md", "first")
    first = worktree.commit()
    worktree.git("tag", "--annotate", "--message=x", "herbs@1.0")
    worktree.git("switch", "--quiet", "--create", "topic/mint/tea")
    worktree.write("SKILL.md", "second")
    second = worktree.commit()
    worktree.git("switch", "--quiet", "main")
    worktree.git("branch", "tea")
    for ref, commit in {"topic/mint/tea": second, "tea": first, "herbs@1.0": first, second: second}.items():
        source = opened(f"{worktree.spec}@{ref}")
        (document,) = documents(f"{worktree.spec}@{ref}")
        assert (document.commit, document.ref, source.version()) == (commit, ref, commit)
        assert document.source == source.spec == f"{worktree.spec}@{ref}"


@pytest.mark.parametrize("ref", ["nowhere", "0" * 40, "main/further"])
def test_a_ref_that_is_not_there_is_terminal(worktree: WorkTree, ref: str) -> None:
    worktree.write("SKILL.md")
    worktree.commit()
    with pytest.raises(SourceError, match="no such branch") as caught:
        documents(f"{worktree.spec}@{ref}")
    assert (caught.value.reason, caught.value.about) == ("missing-ref", f"{worktree.spec}@{ref}")


def test_a_moved_branch_changes_the_version(worktree: WorkTree) -> None:
    worktree.write("SKILL.md")
    worktree.commit()
    before = opened(worktree.spec).version()
    worktree.write("SKILL.md", "changed")
    assert opened(worktree.spec).version() == before
    worktree.commit()
    assert opened(worktree.spec).version() != before
    with pytest.raises(SourceError, match="no such branch"):
        opened(f"{worktree.spec}@nowhere").version()


def test_what_is_no_repository_is_terminal(tmp_path: Path) -> None:
    for spec in [f"git+{tmp_path.as_uri()}", f"git+{tmp_path.as_uri()}/nothing", f"git+{tmp_path}/nothing"]:
        source = opened(spec)
        for look in (source.version, lambda source=source: list(source.read())):
            with pytest.raises(SourceError, match="this is no git repository") as caught:
                look()
            assert caught.value.reason == "not-a-repository"


def test_a_repository_without_commits_or_without_skills_is_terminal(worktree: WorkTree) -> None:
    with pytest.raises(SourceError) as caught:
        documents(worktree.spec)
    assert caught.value.reason == "missing-ref"
    worktree.write("README.md")
    worktree.commit()
    with pytest.raises(SourceError, match=r"no SKILL\.md") as caught:
        documents(worktree.spec)
    assert caught.value.reason == "no-skill"


def test_hooks_filters_and_settings_of_the_machine_are_off(
    worktree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    script = tmp_path / "hooks" / "reference-transaction"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ntouch {witness}\n")
    script.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f'[core]\n\thooksPath = {script.parent}\n[filter "run"]\n\tsmudge = {script}\n\tclean = {script}\n'
        f'[url "ext::{script} "]\n\tinsteadOf = {worktree.path.parent.as_uri()}/\n'
        '[protocol "ext"]\n\tallow = always\n'
    )
    worktree.write("SKILL.md")
    worktree.write(".gitattributes", "* filter=run\n")
    commit = worktree.commit()
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, str(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    monkeypatch.setenv("GIT_WORK_TREE", "/nowhere")
    (document,) = documents(worktree.spec)
    assert (document.commit, opened(worktree.spec).version()) == (commit, commit)
    assert not witness.exists()


def test_reading_stops_where_its_reader_stops_and_leaves_nothing_behind(
    worktree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for number in range(250):
        worktree.write(f"{number:03}/SKILL.md", str(number))
    worktree.git("config", "uploadpack.allowFilter", "true")
    worktree.commit()
    rows = GitSource(worktree.path.as_uri()).read()
    assert not list(scratch.iterdir())
    assert isinstance(next(rows), RawDocument)
    (store,) = scratch.iterdir()
    types = worktree.git(
        "--git-dir", str(store), "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"
    )
    assert types.split().count("blob") == 100
    rows.close()  # type: ignore[attr-defined]
    assert not list(scratch.iterdir())


def test_a_repository_made_of_a_folder_is_always_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name, content in {
        "a/SKILL.md": b"x\r\n\xef\xbb\xbf",
        'odd "name\\ü\n.md': b"",
        "b/skill.md": b"y",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "a/link").symlink_to("SKILL.md")
    spec = make_repository(folder, tmp_path / "one.git")
    commit = opened(spec).version()
    assert spec == f"git+{(tmp_path / 'one.git').as_uri()}"
    (folder / "a/SKILL.md").chmod(0o755)
    (folder / "a/__pycache__").mkdir()
    (folder / "a/__pycache__/x.pyc").write_bytes(b"z")
    assert opened(make_repository(folder, tmp_path / "two.git")).version() == commit
    assert make_repository(folder, tmp_path / "one.git") == spec
    first, second = documents(spec)
    assert (first.content, second.content, first.commit) == (b"x\r\n\xef\xbb\xbf", b"y", commit)
    assert [f.code for f in first.findings] == ["bundle.symlink"]
    (folder / "a/SKILL.md").write_bytes(b"changed")
    make_repository(folder, tmp_path / "one.git")
    assert opened(spec).version() != commit
    assert documents(spec)[0].content == b"changed"


def test_three_hundred_small_skills_cost_few_processes(
    worktree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(5)  # noqa: S311
    for number in range(300):
        worktree.write(f"skills/{number:03}/SKILL.md", generator.randbytes(2_000))
        worktree.write(f"skills/{number:03}/run.sh", f"echo {number}\n")
    worktree.git("config", "uploadpack.allowFilter", "true")
    worktree.commit()
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(tmp_path / "trace"))
    assert len(documents(worktree.spec)) == 300
    assert (tmp_path / "trace").read_text().count('"event":"start"') < 40
