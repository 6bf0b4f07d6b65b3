"""A day is served whole or not at all."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from prefect.utilities.callables import parameter_schema

from flows.commands.runs import foresee_backfill
from storage.errors import WrongInput
from storage.root import Root
from storage.state import documents_table
from tests.support.command import Ask

if TYPE_CHECKING:
    from flows.backfill import Stage


_BAD = {
    "huge": (b"# Words\n\n" + b"many words " * 1_900_000, "too_large"),
    "empty": (b"", "empty"),
    "binary": (bytes(range(256)) * 40, "not_text"),
    "hollow": (b"---\nname: hollow\ndescription: nothing below\n---\n\n# Only a heading\n", "no_body"),
}
_ODD = {
    "nul": (b"# Soup\n\nStir\x00 it now and then.\n", "document.control-characters"),
    "latin": (
        "# Café\n\nMahlen Sie die Bohnen für jede Tasse frisch.\n".encode("cp1252"),
        "document.not-utf8",
    ),
}


@pytest.fixture
def shelf(skills: Path) -> Path:
    """Return the two good skills with bad and odd ones among them."""
    for name, (content, _) in {**_BAD, **_ODD}.items():
        (skills / name).mkdir()
        (skills / name / "SKILL.md").write_bytes(content)
    return skills


def _nightly(root: str, *sources: str) -> dict[str, Any]:
    from flows.nightly import nightly

    return nightly(root, list(sources))


def test_bad_files_end_in_dropped_with_a_reason_and_odd_ones_are_kept_with_a_finding(
    no_server: None, root: str, shelf: Path
) -> None:
    record = _nightly(root, f"dir:{shelf}")
    assert (record["state"], record["documents"], record["published"]) == ("complete", 4, True)
    dropped = pl.read_parquet(Path(root) / "dropped" / f"{record['run_id']}.parquet")
    reasons = {d.rpartition("/")[2]: r for d, r in dropped.select("doc_id", "reason").iter_rows()}
    assert reasons == {name: reason for name, (_, reason) in _BAD.items()}
    assert dropped["source"].unique().to_list() == [f"dir:{shelf}"]
    found = documents_table(Root(root)).read(columns=["doc_id", "findings"])
    codes = {d.rpartition("/")[2]: {f["code"] for f in fs} for d, fs in found.iter_rows()}
    for name, (_, code) in _ODD.items():
        assert code in codes[name]


def test_bad_sources_are_named_and_the_rest_of_the_run_goes_on(
    no_server: None, root: str, skills: Path, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    pl.DataFrame({"title": ["a"]}).write_parquet(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet", "utf-8")
    reasons = {
        f"dir:{tmp_path}/nowhere": "missing",
        f"git+file://{tmp_path}/no-repository": "not-a-repository",
        f"dir:{tmp_path}/bare": "no-skill",
        f"parquet:{tmp_path}/other.parquet": "columns",
        f"parquet:{tmp_path}/text.parquet": "not-parquet",
    }
    record = _nightly(root, *reasons, f"dir:{skills}")
    assert (record["state"], record["documents"], record["published"]) == ("partial", 2, True)
    for told, (spec, reason) in zip(record["sources"][:-1], reasons.items(), strict=True):
        assert (told["source"], told["state"], told["failed"]) == (spec, "failed", {reason: 1})
        assert spec in told["message"]


@pytest.mark.parametrize("stages", [["refine"], ["parse"], ["parse", "parse"]])
def test_a_day_is_not_served_of_which_not_all_is_done(tmp_path: Path, stages: list[Stage]) -> None:
    from flows.backfill import backfill

    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        backfill.fn(date(2026, 3, 1), date(2026, 3, 2), str(tmp_path), publish=True, stages=stages)
    with pytest.raises(WrongInput, match=f"refine and parse, not {stages[0]} alone"):
        foresee_backfill(Root(tmp_path), "2026-03-01", "2026-03-02", publish=True, stages=stages)
    assert not list(tmp_path.iterdir())


def test_what_a_backfill_would_do_is_told_without_a_contradiction(tmp_path: Path, ask: Ask) -> None:
    for day in ("2026-03-01", "2026-03-02"):
        file = tmp_path / f"raw/documents/date={day}/run=r/part-0.parquet"
        file.parent.mkdir(parents=True)
        file.touch()
    dry = ("backfill", "--from", "2026-03-01", "--to", "2026-03-02", "--dry-run", "--root", str(tmp_path))
    said = " ".join(ask(*dry, "--publish").stdout.split())
    assert "nothing was done" in said
    assert "that of 2026-03-02 would be served if it passed the gate" in said
    assert "what is served stays" in " ".join(ask(*dry).stdout.split())


def test_the_form_asks_for_days() -> None:
    from flows.backfill import backfill

    fields = parameter_schema(backfill.fn).model_dump()["properties"]
    assert {name: fields[name]["format"] for name in ("start", "end")} == {"start": "date", "end": "date"}
