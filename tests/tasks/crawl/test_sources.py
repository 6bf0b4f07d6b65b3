from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.commands.operate import remove_listed, source_rows
from flows.crawl import crawl
from flows.server.temporary import as_functions
from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import RawDocument
from storage.state import write_source
from tasks.crawl.git.source import GitSource, split_ref
from tasks.crawl.local.directory import DirectorySource
from tasks.crawl.local.parquet_file import ParquetSource
from tasks.crawl.source_list import specs_to_read
from tasks.crawl.sources import ACCEPTED, normal_spec
from tests.support.crawl.crawling import grows, opened

if TYPE_CHECKING:
    from conftest import WorkTree


@pytest.mark.parametrize(
    ("spec", "kind", "shown"),
    [
        ("dir:a b", DirectorySource, "dir:a b"),
        ("parquet:x.parquet", ParquetSource, "parquet:x.parquet"),
        ("git+https://code.example/a/b", GitSource, "git+https://code.example/a/b"),
        ("git+https://me:word@code.example/a/b.git@v1/x", GitSource, "git+https://code.example/a/b.git@v1/x"),
        ("git+git@code.example:a/b.git@main", GitSource, "git+git@code.example:a/b.git@main"),
        ("git+ssh://git:word@code.example/a/b", GitSource, "git+ssh://git@code.example/a/b"),
    ],
)
def test_a_spec_names_a_source_and_is_shown_without_credentials(spec: str, kind: type, shown: str) -> None:
    source = opened(spec)
    assert isinstance(source, kind)
    assert source.spec == shown


def test_another_form_is_wrong_input_that_lists_the_accepted_ones() -> None:
    for spec in ("", "dir:", "git+", "parquet", "ftp://x", "https://me:se/cret@x.example/a"):
        with pytest.raises(WrongInput) as caught:
            opened(spec)
        message = str(caught.value)
        assert message.endswith(ACCEPTED)
        assert "\n" not in message
        assert "cret" not in message


@pytest.mark.parametrize(
    "address",
    [
        "ext::sh -c touch% {0}", "EXT::sh -c touch% {0}", "fd::17", "x::https://code.example/a/b",
        "ftp://code.example/a/b", "ext://code.example/a", "word", "https://code.example/a/b@",
        "https://code.example/a/b@--upload-pack=touch {0}", "https://code.example/a/b@-x",
        "https://code.example/a/b@main:refs/heads/x", "https://code.example/a/b@a..b",
        "https://code.example/a/b@a b", "https://me:se/cret@code.example/a/b",
    ],
)  # fmt: skip
def test_helpers_other_transports_and_odd_refs_are_refused_unrun(address: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with pytest.raises(WrongInput) as caught:
        opened("git+" + address.format(witness))
    assert "\n" not in str(caught.value)
    assert "cret" not in str(caught.value)
    assert not witness.exists()


@pytest.mark.parametrize(
    ("address", "url", "ref"),
    [
        ("https://code.example/a/b", "https://code.example/a/b", ""),
        ("https://me@mail:p@code.example/a/b", "https://me@mail:p@code.example/a/b", ""),
        ("https://me@code.example/a/b@feature/x@2", "https://me@code.example/a/b", "feature/x@2"),
        ("git@code.example:a/b", "git@code.example:a/b", ""),
        ("git@code.example:a/b.git@v1", "git@code.example:a/b.git", "v1"),
        ("ssh://git@code.example:22/a/b@v1", "ssh://git@code.example:22/a/b", "v1"),
        ("file:///nowhere/b@v1", "file:///nowhere/b", "v1"), ("/nowhere/b@v1", "file:///nowhere/b", "v1"),
        ("/nowhere/100%/b", "file:///nowhere/100%25/b", ""),
    ],
)  # fmt: skip
def test_an_at_sign_in_user_info_begins_no_ref(address: str, url: str, ref: str) -> None:
    assert split_ref(address) == (url, ref)


def test_a_folder_with_an_at_sign_in_its_name_can_be_named(make_worktree: Callable[[str], WorkTree]) -> None:
    tree = make_worktree("gärten at@home@work")
    tree.write("SKILL.md")
    tree.commit()
    specs = {tree.spec: "HEAD", f"{tree.spec}@main": "main", f"git+{tree.path}@main": "main"}
    for spec, ref in specs.items():
        (document,) = opened(spec).read()
        assert isinstance(document, RawDocument)
        assert (document.doc_id, document.ref) == ("local/gärten at@home@work", ref)


def test_the_size_limit_reaches_every_source(worktree: WorkTree) -> None:
    worktree.write("SKILL.md", b"x" * 11)
    worktree.commit()
    for spec in (worktree.spec, f"dir:{worktree.path}"):
        (document,) = opened(spec, max_document_bytes=10).read()
        assert isinstance(document, RawDocument)
        assert (document.content, document.size) == (None, 11)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("./shelf", "dir:{0}/shelf"), (".", "dir:{0}"), ("{0}/shelf", "dir:{0}/shelf"),
        ("shelf", "dir:{0}/shelf"), ("deep/shelf/of", "dir:{0}/deep/shelf/of"),
        ("./a.parquet", "parquet:{0}/a.parquet"), ("a.parquet", "parquet:{0}/a.parquet"),
        ("owner/repo", "github:owner/repo"), ("owner/repo@v1", "github:owner/repo@v1"),
        ("https://github.com/owner/repo", "github:owner/repo"),
        ("https://github.com/owner/repo.git", "github:owner/repo"),
        ("github.com/owner/repo/", "github:owner/repo"),
        ("https://github.com/owner/repo/tree/main", "github:owner/repo@main"),
        ("git@host:owner/repo.git", "git+git@host:owner/repo.git"),
        ("awesome:https://code.example/list.md", "awesome:https://code.example/list.md"),
        ("sample", "sample"), ("mcp-registry", "mcp-registry"), ("dir:./shelf", "dir:{0}/shelf"),
        ("dir:{0}", "dir:{0}"), ("parquet:a.parquet", "parquet:{0}/a.parquet"),
        ("git+https://example.org/o/r.git@v1", "git+https://example.org/o/r.git@v1"),
        ("git+ssh://git@example.org/o/r", "git+ssh://git@example.org/o/r"),
    ],
)  # fmt: skip
def test_a_path_a_name_and_an_address_of_github_become_the_spec_meant(
    text: str, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("shelf", "deep/shelf/of", "sample", "mcp-registry"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a.parquet").touch()
    meant = normal_spec(text.format(tmp_path))
    assert meant == spec.format(tmp_path)
    assert normal_spec(meant) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deep/shelf", "deep/shelf is a folder here, and may be a repository: give dir:deep/shelf or github"),
        ("https://code.example/o/r", "give git+https://code.example/o/r for a git repository, awesome:https"),
        ("https://me:SECRET@github.com/o/r", "give git+https://github.com/o/r"),
        ("https://github.com/o/r/tree/main/skills/one", "a source is a whole repository: give github:o/r"),
        ("nowhere", "unknown source 'nowhere'"),
        ("a/b/c", "unknown source 'a/b/c'"),
    ],
)
def test_what_may_mean_several_specs_is_answered_with_them(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep/shelf").mkdir(parents=True)
    with pytest.raises(WrongInput) as caught:
        normal_spec(text)
    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "login", ["https://user:SECRET", "https://SECRET", "https://x-access-token:SECRET", "ssh://git:SECRET"]
)
def test_a_spec_that_holds_a_secret_is_refused_without_saying_it(login: str) -> None:
    with pytest.raises(WrongInput, match="may hold no user or password") as caught:
        normal_spec(f"git+{login}@example.org/o/r.git")
    assert "SECRET" not in str(caught.value)


def test_a_remembered_source_that_is_refused_fails_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A release that knows more secrets meets a root whose source has one, and prints its program alone."""
    root, spec = Root(tmp_path / "data"), "mcp:stdio:serve --token f44f4"
    (tmp_path / "skills" / "kelp").mkdir(parents=True)
    (tmp_path / "skills" / "kelp" / "SKILL.md").write_bytes(grows("kelp"))
    write_source(root, spec, {"state": "complete", "in_list": True})
    with as_functions():
        reports = crawl(root.uri, [spec, f"dir:{tmp_path / 'skills'}"])
    assert [(one["state"], one["new"]) for one in reports] == [("failed", 0), ("complete", 1)]
    assert "hold a secret" in reports[0]["message"]
    shown = "mcp:stdio:serve [redacted]"
    assert [one["source"] for one in (reports[0], *source_rows(root))][:2] == [shown, shown]
    assert "f44f4" not in f"{reports}{source_rows(root)}{caplog.text}"
    assert remove_listed(root, shown, retire=True)["removed"]
    assert spec not in specs_to_read(root)
