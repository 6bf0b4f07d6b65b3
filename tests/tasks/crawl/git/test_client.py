from __future__ import annotations

import random
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import SkilleryError, SourceError, SourceUnavailable
from storage.schemas import RawDocument
from tasks.crawl.git.client import GitClient
from tasks.crawl.git.source import GitSource, make_repository
from tasks.crawl.source.bundle import DocumentLimits
from tests.support.crawl.crawling import opened

if TYPE_CHECKING:
    from conftest import WorkTree


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


def test_a_server_without_filters_serves_the_same(garden: WorkTree, git_daemon: str) -> None:
    filtered = list(opened(f"git+{git_daemon}/herbs").read())
    garden.git("config", "uploadpack.allowFilter", "false")
    assert list(opened(f"git+{git_daemon}/herbs").read()) == filtered


@pytest.mark.slow
def test_a_server_of_the_old_protocol_serves_the_same(
    garden: WorkTree, git_daemon: str, git_http: str
) -> None:
    (new,) = opened(f"git+{git_daemon}/herbs").read()
    (old,) = opened(f"git+http://{git_http}/herbs").read()
    assert isinstance(old, RawDocument)
    assert isinstance(new, RawDocument)
    assert (old.doc_id, old.content, old.files, old.commit) == (
        new.doc_id,
        new.content,
        new.files,
        new.commit,
    )


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
def test_a_refused_login_is_terminal_and_hides_the_password(
    garden: WorkTree, git_http: str, login: str
) -> None:
    source = opened(f"git+http://{login}{git_http}/private/herbs")
    with pytest.raises(SourceError) as caught:
        list(source.read())
    assert caught.value.reason in {"denied", "missing"}
    assert "wr0ngword" not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert git_http in str(caught.value)


def test_a_repository_that_a_server_does_not_have_is_terminal(
    garden: WorkTree, git_daemon: str, git_http: str
) -> None:
    for url in (f"{git_daemon}/nothing", f"http://{git_http}/nothing"):
        with pytest.raises(SourceError, match="no such repository") as caught:
            opened(f"git+{url}").version()
        assert caught.value.reason == "missing"


def test_a_server_that_does_not_answer_is_transient() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for scheme in ("git", "http", "ssh"):
        with pytest.raises(SourceUnavailable) as caught:
            opened(f"git+{scheme}://127.0.0.1:{port}/a/b").version()
        assert caught.value.reason == "git"


@pytest.mark.parametrize(
    ("scheme", "login"),
    [
        ("git", "reader:wr0ngword"),
        ("http", "reader:wr0ngword"),
        ("http", "wr0ngword"),
        ("ssh", "reader:wr0ngword"),
    ],
)
def test_no_error_of_a_connection_repeats_the_password(scheme: str, login: str) -> None:
    with pytest.raises(SkilleryError) as caught:
        opened(f"git+{scheme}://{login}@127.0.0.1:1/a/b").version()
    assert "wr0ngword" not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert "127.0.0.1:1/a/b" in str(caught.value)


def test_a_server_that_hangs_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        source = opened(f"git+http://127.0.0.1:{server.getsockname()[1]}/a/b", git_timeout=0.5)
        for look in (source.version, lambda: list(source.read())):
            with pytest.raises(SourceUnavailable, match=r"took over 0\.5 s") as caught:
                look()
            assert (caught.value.reason, caught.value.about) == ("timeout", source.spec)


def test_without_git_the_error_says_so(
    worktree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(worktree.path))
    with pytest.raises(SourceError, match="git is not installed") as caught:
        opened(worktree.spec).version()
    assert caught.value.reason == "no-git"
    with pytest.raises(SourceError, match="git is not installed"):
        make_repository(worktree.path, tmp_path / "made.git")
