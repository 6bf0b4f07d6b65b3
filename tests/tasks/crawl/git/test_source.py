"""A git repository as a source, and the servers that it may lie on."""

from __future__ import annotations

import hashlib
import random
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import SourceError, SourceUnavailable
from storage.schemas import Dropped, RawDocument
from tasks.crawl.git.client import GitClient
from tasks.crawl.git.source import GitSource, make_repository
from tasks.crawl.source.bundle import DocumentLimits
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


def test_every_letter_case_and_depth_is_found(worktree: WorkTree) -> None:
    paths = {"SKILL.md": "", "a/skill.md": "/a", "a/b c/ü/Skill.MD": "/a/b c/ü"}
    for path in paths:
        worktree.write(path)
    worktree.commit()
    assert {d.path: d.doc_id for d in documents(worktree.spec)} == {
        path: f"local/herbs{folder}" for path, folder in paths.items()
    }


def test_links_are_recorded_and_never_followed(worktree: WorkTree) -> None:
    worktree.write("real/SKILL.md")
    worktree.write("real/notes.md")
    links = {
        "linked/SKILL.md": "../real/SKILL.md", "folder": "real", "real/alias.md": "notes.md",
        "real/secrets": "/etc", "outside": "../elsewhere", "README.md": "real/notes.md",
    }  # fmt: skip
    for path, target in links.items():
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


def test_a_submodule_is_recorded_once(worktree: WorkTree, make_worktree: Callable[[str], WorkTree]) -> None:
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
    for ref in ("nowhere", "0" * 40, "main/further"):
        with pytest.raises(SourceError, match="no such branch") as caught:
            documents(spec := f"{worktree.spec}@{ref}")
        assert (caught.value.reason, caught.value.about) == ("missing-ref", spec)
    with pytest.raises(SourceError, match="no such branch"):
        opened(f"{worktree.spec}@nowhere").version()
    worktree.write("SKILL.md", "changed")  # which is no commit yet
    assert opened(worktree.spec).version() == first
    assert worktree.commit() == opened(worktree.spec).version()


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


def test_reading_stops_where_its_reader_stops_leaves_nothing_behind_and_takes_few_processes(
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
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(tmp_path / "trace"))
    assert len(documents(worktree.spec)) == 250
    assert (tmp_path / "trace").read_text().count('"event":"start"') < 40


def test_a_repository_made_of_a_folder_is_always_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    files = {"a/SKILL.md": b"x\r\n\xef\xbb\xbf", 'odd "name\\ü\n.md': b"", "b/skill.md": b"y"}
    for name, content in files.items():
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


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def garden(worktree: WorkTree) -> WorkTree:
    """A repository whose server filters, with 5 MB that no skill needs and some that one does."""
    worktree.git("config", "uploadpack.allowFilter", "true")
    worktree.write("film.bin", random.Random(1).randbytes(5_000_000))  # noqa: S311
    worktree.write("skills/mint/SKILL.md", "Pick it.")
    worktree.write("skills/mint/leaf.bin", random.Random(2).randbytes(10_000))  # noqa: S311
    worktree.write("LICENSE", "Free.")
    worktree.commit()
    return worktree


def test_only_needed_blobs_are_transferred(garden: WorkTree, git_daemon: str, scratch: Path) -> None:
    rows = opened(f"git+{git_daemon}/herbs").read()
    document = next(rows)
    assert isinstance(document, RawDocument)
    assert (document.doc_id, document.content) == ("127.0.0.1/herbs/skills/mint", b"Pick it.")
    assert [(f.path, f.size) for f in document.files or ()] == [("leaf.bin", 10_000)]
    assert [licence.text for licence in document.licence_files] == ["Free."]
    assert 10_000 < size_of(scratch) < 200_000
    assert not list(rows)


def test_a_few_trees_that_unfold_to_a_thousand_million_paths_are_refused_at_once(worktree: WorkTree) -> None:
    held = worktree.git("hash-object", "-w", str(worktree.write("SKILL.md", "Pick it.")))
    line = f"100644 blob {held}"
    for _ in range(9):
        tree = worktree.mktree([f"{line}\t{name}" for name in "abcdefghij"])
        line = f"040000 tree {tree}"
    worktree.git("update-ref", "refs/heads/main", worktree.git("commit-tree", tree, "-m", "bomb"))
    began = time.monotonic()
    with pytest.raises(SourceError, match="more than 20,000 paths") as refused:
        list(GitSource(worktree.path.as_uri(), limits=DocumentLimits(repository_paths=20_000)).read())
    assert refused.value.reason == "too-many-paths"
    assert time.monotonic() - began < 60


def test_servers_without_filters_or_of_old_protocol_serve_it(
    garden: WorkTree, git_daemon: str, git_http: str
) -> None:
    (filtered,) = opened(f"git+{git_daemon}/herbs").read()
    (old,) = opened(f"git+http://{git_http}/herbs").read()
    garden.git("config", "uploadpack.allowFilter", "false")
    assert list(opened(f"git+{git_daemon}/herbs").read()) == [filtered]
    assert isinstance(old, RawDocument)
    assert isinstance(filtered, RawDocument)
    assert replace(old, source=filtered.source, url=filtered.url) == filtered
    for url in (f"{git_daemon}/nothing", f"http://{git_http}/nothing"):
        with pytest.raises(SourceError, match="no such repository") as caught:
            opened(f"git+{url}").version()
        assert caught.value.reason == "missing"


def test_no_local_command_fetches_a_missing_blob(garden: WorkTree, git_daemon: str) -> None:
    film = garden.git("rev-parse", "HEAD:film.bin")
    with GitClient(f"{git_daemon}/herbs", "spec", timeout=60) as client:
        client.fetch("HEAD")
        with pytest.raises(OSError, match=film):
            client.read(film, 0)
        client.fetch_blobs([film], "HEAD")
        assert client.sizes([film, "0" * 40]) == {film: 5_000_000, "0" * 40: 0}
        assert client.read(film, 0).size == 5_000_000
        assert client.read(film, 0) is client.read(film, 0)  # it is read once


def test_credentials_open_a_private_server_and_appear_nowhere(
    garden: WorkTree, git_http: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    source = opened(f"git+http://reader:s3cr%25t%2Fet@{git_http}/private/herbs")
    (document,) = source.read()
    assert isinstance(document, RawDocument)
    assert document.content == b"Pick it."
    assert source.spec == document.source == f"git+http://{git_http}/private/herbs"
    assert document.doc_id == "127.0.0.1/private/herbs/skills/mint"
    shown = f"{document} {capfd.readouterr()} {caplog.text}"
    assert not any(secret in shown for secret in ("s3cr", "reader"))


@pytest.mark.parametrize("login", ["reader:wr0ngword@", "wr0ngword@", ""])
def test_a_refused_login_is_terminal_and_hides_it(garden: WorkTree, git_http: str, login: str) -> None:
    source = opened(f"git+http://{login}{git_http}/private/herbs")
    with pytest.raises(SourceError) as caught:
        list(source.read())
    assert caught.value.reason in {"denied", "missing"}
    assert "wr0ngword" not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert git_http in str(caught.value)


def test_a_server_that_does_not_answer_is_transient_and_its_password_not_repeated() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for login in ("", "reader:wr0ngword@", "wr0ngword@"):
        for scheme in ("git", "http", "ssh"):
            with pytest.raises(SourceUnavailable) as caught:
                opened(f"git+{scheme}://{login}127.0.0.1:{port}/a/b").version()
            assert caught.value.reason == "git"
            # An account of SSH alone is no password.
            told = f"{caught.value!r} {caught.value.__cause__!r}"
            assert "wr0ngword" not in told or (scheme, login) == ("ssh", "wr0ngword@")
            assert f"127.0.0.1:{port}/a/b" in told


def test_a_server_that_hangs_is_given_up() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        source = opened(f"git+http://127.0.0.1:{server.getsockname()[1]}/a/b", git_timeout=0.5)
        for look in (source.version, lambda: list(source.read())):
            with pytest.raises(SourceUnavailable, match=r"took over 0\.5 s") as caught:
                look()
            assert (caught.value.reason, caught.value.about) == ("timeout", source.spec)


def test_without_git_it_says_so(worktree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(worktree.path))
    with pytest.raises(SourceError, match="git is not installed") as caught:
        opened(worktree.spec).version()
    assert caught.value.reason == "no-git"
    with pytest.raises(SourceError, match="git is not installed"):
        make_repository(worktree.path, tmp_path / "made.git")
