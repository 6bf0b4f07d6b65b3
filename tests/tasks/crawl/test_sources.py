from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.cli.options import SPECS
from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.git.source import GitSource, split_ref
from tasks.crawl.source.content import DocumentLimits
from tasks.crawl.source.directory import DirectorySource
from tasks.crawl.source.parquet_file import ParquetSource
from tasks.crawl.source.remote import SourceOptions
from tasks.crawl.sources import ACCEPTED, normal_spec, open_source, parse_spec

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
    source = parse_spec(spec)
    assert isinstance(source, kind)
    assert source.spec == shown


@pytest.mark.parametrize("spec", ["", "dir:", "git+", "parquet", "ftp://x", "https://me:se/cret@x.example/a"])
def test_another_form_is_wrong_input_that_lists_the_accepted_ones(spec: str) -> None:
    with pytest.raises(WrongInput) as caught:
        parse_spec(spec)
    message = str(caught.value)
    assert message.endswith(ACCEPTED)
    assert "\n" not in message
    assert "cret" not in message


@pytest.mark.parametrize(
    "address",
    [
        "ext::sh -c touch% {0}",
        "EXT::sh -c touch% {0}",
        "fd::17",
        "x::https://code.example/a/b",
        "ftp://code.example/a/b",
        "ext://code.example/a",
        "word",
        "https://code.example/a/b@",
        "https://code.example/a/b@--upload-pack=touch {0}",
        "https://code.example/a/b@-x",
        "https://code.example/a/b@main:refs/heads/x",
        "https://code.example/a/b@a..b",
        "https://code.example/a/b@a b",
        "https://me:se/cret@code.example/a/b",
    ],
)
def test_helpers_other_transports_and_odd_refs_are_refused_and_nothing_runs(
    address: str, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    with pytest.raises(WrongInput) as caught:
        parse_spec("git+" + address.format(witness))
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
        ("file:///nowhere/b@v1", "file:///nowhere/b", "v1"),
        ("/nowhere/b@v1", "file:///nowhere/b", "v1"),
        ("/nowhere/100%/b", "file:///nowhere/100%25/b", ""),
    ],
)
def test_an_at_sign_in_user_info_begins_no_ref(address: str, url: str, ref: str) -> None:
    assert split_ref(address) == (url, ref)


def test_a_folder_with_an_at_sign_in_its_name_can_be_named(make_worktree: Callable[[str], WorkTree]) -> None:
    tree = make_worktree("gärten at@home@work")
    tree.write("SKILL.md")
    tree.commit()
    for spec, ref in {
        tree.spec: "HEAD",
        f"{tree.spec}@main": "main",
        f"git+{tree.path}@main": "main",
    }.items():
        (document,) = parse_spec(spec).read()
        assert isinstance(document, RawDocument)
        assert (document.doc_id, document.ref) == ("local/gärten at@home@work", ref)


def test_the_size_limit_reaches_every_source(worktree: WorkTree) -> None:
    worktree.write("SKILL.md", b"x" * 11)
    worktree.commit()
    for spec in (worktree.spec, f"dir:{worktree.path}"):
        (document,) = parse_spec(spec, DocumentLimits(document_bytes=10)).read()
        assert isinstance(document, RawDocument)
        assert (document.content, document.size) == (None, 11)


def test_local_paths_are_remembered_absolute_so_that_another_working_directory_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert normal_spec("dir:./shelf") == normal_spec("dir:shelf") == f"dir:{tmp_path / 'shelf'}"
    assert normal_spec("parquet:a.parquet") == f"parquet:{tmp_path / 'a.parquet'}"
    assert normal_spec(f"dir:{tmp_path}") == f"dir:{tmp_path}"


@pytest.mark.parametrize(
    "spec",
    ["sample", "git+https://example.org/o/r.git@v1", "git+ssh://git@example.org/o/r", "git+git@host:o/r"],
)
def test_other_specs_stay_as_they_are(spec: str) -> None:
    assert normal_spec(spec) == spec


@pytest.mark.parametrize("login", ["user:SECRET", "SECRET", "x-access-token:SECRET"])
def test_a_spec_that_holds_a_secret_is_refused_without_saying_it(login: str) -> None:
    with pytest.raises(WrongInput, match="may hold no user or password") as caught:
        normal_spec(f"git+https://{login}@example.org/o/r.git")
    assert "SECRET" not in str(caught.value)


def test_a_password_for_ssh_is_refused_too() -> None:
    with pytest.raises(WrongInput, match="may hold no user or password"):
        normal_spec("git+ssh://git:SECRET@example.org/o/r")


def test_any_other_spec_names_its_own_source(tmp_path: Path) -> None:
    assert isinstance(
        open_source(f"dir:{tmp_path}", SourceOptions(Root(tmp_path), datetime.now(UTC))), DirectorySource
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("./skills", "dir:./skills"),
        ("/srv/skills", "dir:/srv/skills"),
        ("~/skills", "dir:~/skills"),
        ("skills.parquet", "parquet:skills.parquet"),
        ("ada/looms", "github:ada/looms"),
        ("ada/looms@v2", "github:ada/looms@v2"),
        ("https://github.com/ada/looms", "github:ada/looms"),
        ("github.com/ada/looms.git", "github:ada/looms"),
        ("https://github.com/ada/looms/tree/main/weaving", "github:ada/looms@main"),
        ("https://git.example.org/ada/looms", "git+https://git.example.org/ada/looms"),
        ("git@example.org:ada/looms", "git+git@example.org:ada/looms"),
    ],
)
def test_the_spec_that_is_meant_is_named(given: str, meant: str) -> None:
    with pytest.raises(WrongInput, match=re.escape(f"you may mean {meant};")):
        parse_spec(given)


def test_what_is_like_no_source_is_told_the_forms_alone() -> None:
    with pytest.raises(WrongInput) as said:
        parse_spec("ftp:nowhere")

    assert "you may mean" not in str(said.value)
    assert ACCEPTED in str(said.value)
    assert SPECS == ACCEPTED  # what `run --help` says
