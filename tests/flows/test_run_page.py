"""What a run's page in Prefect shows: its name, its lines, its tables."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows import run_page
from flows.run_page import batch_progress, pace
from flows.run_record import recorded
from flows.server.temporary import as_functions
from storage.errors import NothingReadable, StorageError
from storage.root import Root
from storage.state import read_run
from tests.support.prefect_page import answer_of, artifact, table

EVIL = "te\x1b[2Ja\u202e"


def last_run(api: str, name: str) -> dict[str, Any]:
    wanted = {"flows": {"name": {"any_": [name]}}, "sort": "START_TIME_DESC", "limit": 1}
    (run,) = answer_of(api, "flow_runs/filter", wanted)
    found: dict[str, Any] = run
    return found


def lines(api: str, run: dict[str, Any]) -> list[str]:
    """Return the lines on a run's page, without those of the runs that it started."""
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=30)
    wanted = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "sort": "TIMESTAMP_ASC"}
    return [log["message"] for log in answer_of(api, "logs/filter", wanted)]


def logged(flow: Any, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401 (a flow, and what it returns)
    """Run a flow as a worker does, whose lines go to the server."""
    from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: True}):
        return flow(*arguments, **more)


def test_a_night_tells_on_its_page_what_it_read_dropped_made_and_published(
    prefect_server: str, root: str, skills: Path
) -> None:
    from flows.nightly import nightly

    (skills / "hollow").mkdir()
    (skills / "hollow" / "SKILL.md").write_text("---\nname: hollow\ndescription: Nothing.\n---\n", "utf-8")
    record = logged(nightly, root, [f"dir:{skills}"])
    told = lines(prefect_server, last_run(prefect_server, "nightly"))
    read = "complete; listed 3, new 3, changed 0, unchanged 0, retired 0"
    assert f"source dir:{skills}: {read}" in told
    assert "documents 2, dropped: no_body 1" in told
    assert f"nodes {record['nodes']}, edges {record['edges']}, vectors made {record['vectors_new']}" in told
    assert f"checks passed: {len(record['checks'])} of {len(record['checks'])}" in told
    assert f"published: {record['served']}" in told
    assert any(line.startswith(f"run {record['run_id']} is complete") for line in told)


def test_a_night_that_failed_tells_why(prefect_server: str, root: str, tmp_path: Path) -> None:
    from flows.nightly import nightly

    with pytest.raises(NothingReadable):
        logged(nightly, root, [f"dir:{tmp_path / EVIL}"])
    told = lines(prefect_server, last_run(prefect_server, "nightly"))
    assert any("is failed: " in line for line in told)
    assert [line for line in told if r"te\x1b[2Ja\u202e: failed; listed 0" in line]


def test_a_name_given_in_the_form_stays_and_a_generated_one_becomes_the_flows(
    prefect_server: str, root: str
) -> None:
    from prefect.client.orchestration import get_client

    from flows.compact import compact

    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(compact)
        schema, start = compact.parameters.model_dump(), client.create_flow_run_from_deployment
        made = client.create_deployment(flow_id, "named", parameter_openapi_schema=schema)
        given = start(made, parameters={"root": root}, name="before the move")
        generated = start(made, parameters={"root": root})
        for run in (given, generated):
            _execute(compact, run)
        names = [client.read_flow_run(run.id).name for run in (given, generated)]
    assert names == ["before the move", f"compact {root}"]


def _execute(flow: Any, run: Any) -> None:  # noqa: ANN401 (of Prefect's client)
    """Run a flow as the engine of a worker's process does."""
    from prefect.flow_engine import run_flow

    run_flow(flow, flow_run=run, parameters=run.parameters, return_type="state")


def test_prefects_own_names_are_told_from_given_ones() -> None:
    from prefect.utilities.names import generate_slug

    from flows.run_page import is_generated

    assert all(is_generated(generate_slug(2)) for _ in range(1000))
    assert not any(map(is_generated, ("before-move", "nightly data", "weekly", "weekly-test-2", "")))


def test_an_evaluation_reports_each_leg_keeps_history_and_shows_a_table_with_figures(
    prefect_server: str, root: str, skills: Path
) -> None:
    from flows.evaluate import evaluate
    from flows.nightly import nightly

    with as_functions():
        nightly(root, [f"dir:{skills}"])
    found = logged(evaluate, root)
    legs = {(row["leg"], row["measure"]) for row in found["probes"]}
    assert {("dense", "hit@10"), ("lexical", "hit@10"), ("fused", "hit@10")} <= legs
    assert {row["value"] for row in found["probes"] if row["leg"] == "lexical"} == {1.0}
    history = pl.read_parquet(Path(root) / "reports" / "evaluations")
    assert history["version"].unique().to_list() == [found["version"]]
    text = artifact(prefect_server, "skillery-evaluation")["data"]
    assert "| probe | leg | measure | value | before | verdict |\n| --- |" in text
    assert r"| sentence to skill | lexical | hit@10 | 1 |  | new |" in text
    verdict = f"{found['version']}: No measure is worse than its thresholds allow."
    assert verdict in lines(prefect_server, last_run(prefect_server, "evaluate"))


def test_no_text_of_a_third_party_is_markup_or_a_control_in_an_artifact(prefect_server: str) -> None:
    from prefect import flow

    from flows.run_page import markdown_table, show_table

    @flow
    def shows() -> None:
        show_table("skillery-evil", [{"source": EVIL, "failed": {EVIL: 1}, "ids": [EVIL, 3]}], EVIL)

    shows()
    safe = r"te\x1b[2Ja\u202e"
    (shown,) = table(prefect_server, "skillery-evil")
    assert shown == {"source": safe, "failed": {safe: 1}, "ids": [safe, 3]}
    rows = [{"a": "x|y<b>\n**", "b": 0.123456, "c": None, "d": 2587581.0}]
    head = "| a | b | c | d |\n| --- | --- | --- | --- |\n"
    assert markdown_table(rows) == head + "| x\\|y\\<b\\>\\\\n\\*\\* | 0.1235 |  | 2,587,581 |"
    assert markdown_table([]) == ""


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [
        (1, 4, 20.0, "1 of 4 batches, 3 a minute, about 60 s left"),
        (10, 64, 300.0, "10 of 64 batches, 2 a minute, about 27 min left"),
        (1, 64, 600.0, "1 of 64 batches, 0.1 a minute, about 10.5 h left"),
    ],
)
def test_the_pace_says_when_the_rest_will_be_done(done: int, total: int, seconds: float, said: str) -> None:
    assert pace(done, total, seconds) == said


def test_a_line_is_told_every_ten_seconds_and_none_at_the_end_or_of_a_single_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, told = [0.0], list[str]()
    monkeypatch.setattr(run_page.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(run_page, "tell", told.append)
    with batch_progress("parse", 8) as step:
        for _ in range(8):
            clock[0] += 4
            step()
    assert [line.split(",")[0] for line in told] == ["parse: 3 of 8 batches", "parse: 6 of 8 batches"]
    monkeypatch.setattr(run_page, "tell", pytest.fail)
    with batch_progress("parse", 1) as step:
        step()


_LANCE = "lance error: LanceError(IO): No space left on device (os error 28), /build/crates/w.rs:258:9"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(_LANCE), "{0}: No space left on device: make room on that disk, and run again"),
        (
            StorageError("{0}/a.bin cannot be written (No space left on device)"),
            "{0}/a.bin cannot be written (No space left on device): make room on that disk, and run again",
        ),
        (OSError(errno.EIO, "Input/output error"), "[Errno 5] Input/output error"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_a_run_that_meets_a_full_disk_says_which_and_what_to_do(
    error: Exception, said: str, tmp_path: Path
) -> None:
    root = Root(tmp_path)
    error.args = tuple(str(a).format(tmp_path) if isinstance(a, str) else a for a in error.args)
    with pytest.raises(type(error)), recorded(root, "20260101T000000-abcdef", [], flow="nightly"):
        raise error
    record = read_run(root, "20260101T000000-abcdef")
    assert record is not None
    assert (record["state"], record["message"]) == ("failed", said.format(tmp_path))
