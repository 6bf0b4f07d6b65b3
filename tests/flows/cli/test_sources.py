"""The list of sources as an operator keeps it: shown, added to, read by nights, removed from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from flows.commands.monitoring import RootCollector
from storage.errors import GateRefused, NothingReadable
from storage.root import Root
from storage.state import documents_table, read_runs, read_sources
from tests.support.command import Ask

_SKILL = "---\nname: {0}\ndescription: Make {0} at home.\n---\n# {0}\n\nBoil {1} of water, then add {0}.\n"


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Return two folders of skills; both have the skill that is called shared/cocoa."""
    shelves = tmp_path / "one/shared", tmp_path / "two/shared"
    for shelf, names in zip(shelves, (("cocoa", "coffee"), ("cocoa", "broth")), strict=True):
        for name in names:
            (shelf / name).mkdir(parents=True)
            (shelf / name / "SKILL.md").write_text(_SKILL.format(name, "a litre"), "utf-8")
    return shelves


def _rows(ask: Ask, root: str) -> dict[str, dict[str, Any]]:
    return {row["source"]: row for row in ask.told("sources", "--root", root)["sources"]}


def _stale(root: str) -> dict[str, float]:
    found = {metric.name: metric for metric in RootCollector(Root(root)).collect()}
    return {sample.labels["source"]: sample.value for sample in found["skillery_source_stale"].samples}


def _documents(root: str) -> set[str]:
    return set(documents_table(Root(root)).read(columns=["doc_id"])["doc_id"])


def _read_both(root: str, two: tuple[Path, Path]) -> tuple[str, str, str]:
    """Read the two folders; return their specs and one with a typing error."""
    from flows.nightly import nightly

    one, other = (f"dir:{path}" for path in two)
    nightly(root, [one, other])
    return one, other, f"{one}x"


def test_the_whole_life_of_sources(
    no_server: None, root: str, two: tuple[Path, Path], ask: Ask, tmp_path: Path
) -> None:
    from flows.nightly import nightly

    one, other, typo = (f"dir:{path}" for path in (*two, f"{two[0]}x"))
    nightly(root, [one])
    nightly(root, [other])
    both = nightly(root)
    assert [source["source"] for source in both["sources"]] == both["specs"] == [one, other]
    assert {row["state"] for row in _rows(ask, root).values()} == {"complete"}

    with pytest.raises(NothingReadable, match="it was not added to the list of sources"):
        nightly(root, [typo])
    partial = nightly(root, [one, typo])
    assert (partial["state"], partial["sources"][1]["state"]) == ("partial", "failed")
    assert partial["sources"][1]["message"].endswith("it was not added to the list of sources")
    assert _rows(ask, root).keys() == _stale(root).keys() == {one, other}
    assert set(_stale(root).values()) == {0.0}

    two[1].rename(tmp_path / "away")
    nightly(root)
    assert _stale(root) == {one: 0.0, other: 1.0}, "a source on the list is stale where it cannot be read"
    assert ask.told("sources", "remove", other, "--root", root) == {
        "source": other, "removed": True, "retired": 0, "documents": 2,
    }  # fmt: skip
    assert (_rows(ask, root)[other]["state"], _stale(root)) == ("unlisted", {one: 0.0})
    assert nightly(root)["specs"] == [one]
    apart = f"shared~{hashlib.sha256(str(two[1]).encode()).hexdigest()[:6]}"
    assert _documents(root) == {"local/shared/cocoa", "local/shared/coffee", f"local/{apart}/broth"}

    assert ask.told("sources", "remove", other, "--retire", "--root", root)["retired"] == 2
    assert nightly(root)["documents"] == 2
    assert _documents(root) == {"local/shared/cocoa", "local/shared/coffee"}
    assert _rows(ask, root).keys() == {one}
    assert ask.told("sources", "remove", other, "--retire", "--root", root) == {
        "source": other, "removed": False, "retired": 0, "documents": 0,
    }  # fmt: skip

    (tmp_path / "away").rename(two[1])
    assert ask.told("sources", "add", str(two[1]), "--root", root) == {"source": other, "added": True}
    assert nightly(root)["documents"] == 3


def test_a_root_of_an_older_skillery_reads_again_what_it_had_stopped_reading(
    no_server: None, root: str, two: tuple[Path, Path], ask: Ask
) -> None:
    from flows.nightly import nightly

    one, other, typo = _read_both(root, two)
    records = {
        spec: {key: value for key, value in record.items() if key not in ("in_list", "retired_at")}
        for spec, record in read_sources(Root(root)).items()
    }
    stale = {"last_read": None, "last_complete": None, "stale_since": "2026-03-01T02:00:00+00:00"}
    told = {"state": "failed", "message": f"{typo}: there is no such folder"}
    records[typo] = {**records[one], **stale, **told}
    (Path(root) / "state/sources.json").write_text(json.dumps({"sources": records}), "utf-8")
    assert _stale(root) == {one: 0.0, other: 0.0}
    shown = _rows(ask, root)[typo]
    assert (shown["state"], shown["stale_since"]) == ("unlisted", None)
    assert f"{typo}: there is no such folder" in ask("sources", "--root", root).stdout
    assert nightly(root)["specs"] == [one, other]
    assert ask.told("sources", "remove", typo, "--root", root)["removed"] is False
    assert _rows(ask, root).keys() == {one, other}


def test_a_list_that_was_emptied_is_a_night_that_reads_nothing_and_says_so(
    no_server: None, root: str, two: tuple[Path, Path], ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.cli.printing.run import print_run
    from flows.nightly import nightly

    nightly(root, [f"dir:{two[0]}"])
    ask.told("sources", "remove", str(two[0]), "--root", root)
    record = nightly(root)
    assert (record["state"], record["specs"], record["documents"]) == ("complete", [], 2)
    capsys.readouterr()
    print_run(record)
    assert "no source is listed: skillery sources add SPEC adds one\n" in capsys.readouterr().out


def test_a_night_of_which_nothing_is_left_says_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    from flows.cli.printing.run import print_run
    from flows.run_record import RunRecord
    from tasks.crawl.collect import SourceReport

    source = asdict(SourceReport("dir:/skills", listed=2, new=2, failed={"unreadable": 1}))
    record = RunRecord("r1", "nightly", ["dir:/skills"], "2026-01-01", "complete", sources=[source])
    record.dropped = {"no_body": 2}
    print_run(record.as_dict())
    told = "no document is left of 2 listed, dropped: no_body 2, unreadable 1; dropped/ below the root"
    assert told in " ".join(capsys.readouterr().out.split())


def test_a_source_too_large_to_lose_is_retired_where_the_gate_is_told_so(
    no_server: None, root: str, two: tuple[Path, Path], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.nightly import nightly

    monkeypatch.setenv("SKILLERY_GATE_FEW", "0")
    one, *_ = _read_both(root, two)
    said = ask("sources", "remove", one, "--retire", "--root", root).stdout
    with pytest.raises(GateRefused, match=r"skills\.shrink"):
        nightly(root)
    (name, value) = re.findall(r"(SKILLERY_GATE_MAX_SHRINK)=(\d)", said)[0]
    monkeypatch.setenv(name, value)
    assert nightly(root)["published"]
    assert read_runs(Root(root))[0]["documents"] == 2


def test_what_is_added_is_shown_before_any_run_and_added_once(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shelf").mkdir()
    root = str(tmp_path / "root")
    for given, spec in {
        "./shelf": f"dir:{tmp_path / 'shelf'}",
        "ann/garden": "github:ann/garden",
        "https://github.com/ann/orchard/tree/v2": "github:ann/orchard@v2",
    }.items():
        assert [ask.told("sources", "add", given, "--root", root) for _ in range(2)] == [
            {"source": spec, "added": True}, {"source": spec, "added": False},
        ]  # fmt: skip
    rows = _rows(ask, root)
    states = {(row["state"], row["documents"], row["last_complete"]) for row in rows.values()}
    assert states == {("unread", 0, None)}
    assert set(_stale(root).values()) == {0.0}
    assert ask.told("sources", "remove", "ann/garden", "--root", root)["removed"]
    assert _rows(ask, root).keys() == rows.keys() - {"github:ann/garden"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "a/folder"], "give dir:a/folder or github:a/folder"),
        (["add", "https://github.com/ann/garden/tree/main/beds"], "github:ann/garden@main"),
        (["add"], "SPEC"),
        (["remove", "github:ann/gardem"], "near it are github:ann/garden"),
        (["remove", "ann/Garden"], "near it are github:ann/garden"),
        (["remove", "sampel"], "near it are sample"),
        (["remove", "parquet:/x/y.parquet"], "`skillery sources` lists all"),
        (["remove", "https://ann:hush@github.com/ann/garden"], "give git+https://github.com/ann/garden"),
        (["list"], "list"),
    ],
)
def test_wrong_use_of_the_list_names_what_was_meant_and_changes_nothing(
    arguments: list[str], said: str, tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a/folder").mkdir(parents=True)
    for spec in ("github:ann/garden", "sample"):
        ask.told("sources", "add", spec, "--root", "root")
    before = read_sources(Root(tmp_path / "root"))
    told = ask.refused("sources", *arguments, "--root", "root")
    assert said in told
    assert "hush" not in told
    assert read_sources(Root(tmp_path / "root")) == before


def test_options_before_add_are_refused_because_they_would_be_those_of_the_list(
    tmp_path: Path, ask: Ask
) -> None:
    told = ask.refused("sources", "--root", str(tmp_path / "root"), "add", "sample")
    assert told == "skillery: options stand after the command: skillery sources add --root ...\n"
    assert list(tmp_path.iterdir()) == []


def test_the_list_changes_only_where_nobody_else_writes(
    tmp_path: Path, ask: Ask, other_writer: Callable[[str], AbstractContextManager[None]]
) -> None:
    root = str(tmp_path)
    ask.told("sources", "add", "sample", "--root", root)
    with other_writer(root):
        for command in (["add", "mcp-registry"], ["remove", "sample"], ["remove", "sample", "--retire"]):
            done = ask("sources", *command, "--root", root)
            assert done.code == 1
            assert "another run writes to" in done.stderr
        assert _rows(ask, root).keys() == {"sample"}


def test_a_person_reads_the_list_in_80_columns(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    root = str(tmp_path)
    assert "none yet" in ask("sources", "--root", root).stdout
    for spec in ("github:ann/garden", f"dir:/{'long-' * 20}shelf"):
        ask.told("sources", "add", spec, "--root", root)
    lines = re.sub(r"\x1b\[[\d;]*m", "", ask("sources", "--root", root).stdout).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(re.search(r"github:ann/garden +│ unread +│ 0 +│ never", line) for line in lines), lines
