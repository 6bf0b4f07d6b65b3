from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import WrongInput
from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.git.sample import SampleSource
from tasks.crawl.sources import normal_spec


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


def test_no_row_of_the_sample_names_the_root_it_lies_in(tmp_path: Path) -> None:
    rows = list(SampleSource(Root(tmp_path)).read())
    assert {row.source for row in rows} == {"sample"}
    assert str(tmp_path) not in repr([r for r in rows if isinstance(r, RawDocument)])
