"""Events of lineage, held to OpenLineage's schemas."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from flows.commands.open_formats.json_log import DOING, JsonLines, run_of_process
from flows.commands.open_formats.lineage import _SOURCES, _read, require_openlineage
from flows.run_record import recorded, run_as
from storage.errors import GateRefused, WrongInput
from storage.locks import writer_lock
from storage.root import Root
from storage.state import REFINED, refined_table, write_heartbeat
from tests.support.command import skillery
from tests.support.lineage import events
from tests.support.loopback import answering
from tests.support.paths import PROJECT
from tests.support.processes import slow_but
from tests.support.roots.skill_root import SkillRoot

RUN, NEXT = "20260203T021500-abcdef", "20260204T021500-abcdef"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKILLERY_OPENLINEAGE", f"file:{tmp_path / 'told/events.ndjson'}")
    return tmp_path / "told/events.ndjson"


def named(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in found]


def outputs(event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"].rpartition("/root/")[2]: one for one in event["outputs"]}


STAGES = ("crawl", "refine", "parse", "index")


def test_a_night_is_told_stage_by_stage_with_schemas_rows_versions_and_checks(
    served_bakery: SkillRoot, tmp_path: Path, told: Path
) -> None:
    root = Root(shutil.copytree(served_bakery.root.folder, tmp_path / "root", symlinks=True))
    with recorded(root, RUN, ["git+https://ann:pa55wort@git.example/x"], flow="nightly") as record:
        for name in STAGES:
            with record.stage(name):
                pass
        record.checks = [{"check": "rows", "passed": True, "value": 4, "limit": 4}]
        left_out = {"doc_id": "a", "source": "s", "digest": "x", "outcome": "too_short"}
        refined_table(root).replace(["a"], pl.DataFrame([left_out], schema=REFINED))
    found = events(told)
    pairs = [(f"nightly.{name}", kind) for name in STAGES for kind in ("START", "COMPLETE")]
    assert named(found) == [("nightly", "START"), *pairs, ("nightly", "COMPLETE")]
    whole = found[0]["run"]["runId"]
    assert {e["run"]["facets"]["parent"]["run"]["runId"] for e in found[1:-1]} == {whole}
    (source,) = found[1]["inputs"]
    assert source["name"] == "git+https://git.example/x"
    assert "pa55wort" not in told.read_text()
    refined, indexed = outputs(found[4]), outputs(found[8])
    assert refined["documents"]["outputFacets"]["outputStatistics"]["rowCount"] == 4
    field = refined["documents"]["facets"]["schema"]["fields"][0]
    assert (field["name"], field["type"]) == ("doc_id", "string")
    version = indexed["lance/skills"]["facets"]["version"]["datasetVersion"]
    assert version == str(served_bakery.served().skills)
    (gate,) = found[-1]["inputs"]
    (checked,) = gate["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (checked["assertion"], checked["success"]) == ("rows", True)
    run = found[-1]["run"]["facets"]["skillery_run"]
    assert (run["state"], run["dropped"]["too_short"]) == ("complete", 1)


def test_a_refused_night_and_its_stage_fail(tmp_path: Path, told: Path) -> None:
    refused = GateRefused("rows is 1", [{"check": "rows", "passed": False, "value": 1, "limit": 2}])
    root = Root(tmp_path / "root")
    with suppress(GateRefused), recorded(root, RUN, [], flow="nightly") as record, record.stage("index"):
        raise refused
    found = events(told)
    assert named(found)[2:] == [("nightly.index", "FAIL"), ("nightly", "FAIL")]
    assert "rows" in found[-1]["run"]["facets"]["errorMessage"]["message"]
    (checked,) = found[-1]["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert checked["success"] is False


@pytest.mark.parametrize(
    ("kept", "ends"),
    [
        (False, [("nightly.parse", "FAIL"), ("nightly", "FAIL")]),
        (True, [("nightly", "COMPLETE")]),  # killed while it told its end
    ],
)
def test_a_killed_night_is_told_by_the_next(
    tmp_path: Path, told: Path, *, kept: bool, ends: list[tuple[str, str]]
) -> None:
    root = Root(tmp_path / "root")
    with recorded(root, RUN, [], flow="nightly") as record, record.stage("parse"):
        write_heartbeat(root, record.as_dict())
        left = root.read(f"state/running/{RUN}.json")
    if not kept:
        root.delete(f"state/runs/{RUN}.json")
    root.write(f"state/running/{RUN}.json", left)
    before = events(told)
    with writer_lock(root, run=NEXT), recorded(root, NEXT, [], flow="nightly"):
        pass
    known = {event["run"]["runId"] for event in before}
    found = events(told)[len(before) :]
    assert named([event for event in found if event["run"]["runId"] in known]) == ends
    assert named(found)[-1] == ("nightly", "COMPLETE")


def test_a_source_that_an_older_record_has_with_a_secret_is_told_without(tmp_path: Path) -> None:
    (one,) = _read(Root(tmp_path), _SOURCES, ["mcp:stdio:serve --token f44f4"])
    assert one["name"] == "mcp:stdio:serve [redacted]"


class _Listening(BaseHTTPRequestHandler):
    heard: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.heard.append((self.path, self.headers["Authorization"], event))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def tell_of_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, receiver: type[_Listening], address: str
) -> None:
    """Let a run tell its lineage to a receiver, whose port goes into the address."""
    with answering(receiver) as at:
        monkeypatch.setenv("SKILLERY_OPENLINEAGE", address.format(at.rpartition(":")[2]))
        with recorded(Root(folder), RUN, [], flow="nightly"):
            pass


def test_a_server_is_posted_the_events_with_the_password_of_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_of_a_run(tmp_path, monkeypatch, _Listening, "http://ann:p%40ss@127.0.0.1:{}/base/")
    assert [(path, said) for path, said, _ in _Listening.heard] == [
        ("/base/api/v1/lineage", f"Basic {b64encode(b'ann:p@ss').decode()}")
    ] * 2
    assert named([event for *_, event in _Listening.heard]) == [("nightly", "START"), ("nightly", "COMPLETE")]


class _Leading(_Listening):
    """Leads to itself under another name, as if to another server."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(301)
        self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")  # type: ignore[attr-defined]
        self.end_headers()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()


def test_a_server_that_leads_elsewhere_is_said_to_be_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tell_of_a_run(tmp_path, monkeypatch, _Leading, "http://ann:pa55@127.0.0.1:{}")
    assert _Leading.asked == []
    assert "lineage is not told: HTTP Error 301" in caplog.text


class _Slow(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        time.sleep(30)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[str]:
    with answering(_Slow) as address:
        yield address


@pytest.mark.parametrize("receiver", ["dead", "slow"])
def test_a_receiver_that_is_dead_or_slow_costs_a_run_two_seconds_at_most(
    receiver: str, slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("SKILLERY_OPENLINEAGE", slow if receiver == "slow" else "http://127.0.0.1:9")
    began = time.monotonic()
    with recorded(Root(tmp_path), RUN, [], flow="nightly") as record:
        for name in STAGES:
            with record.stage(name):
                pass
        assert time.monotonic() - began < 2
    assert record.state == "complete"
    assert ("receiver is too slow for" in caplog.text) == (receiver == "slow")


def test_whom_to_tell_is_checked_before_a_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_OPENLINEAGE", "kafka:topic")
    with pytest.raises(WrongInput, match="SKILLERY_OPENLINEAGE=kafka:topic is neither"):
        require_openlineage()


KEYS = ["time", "level", "run", "flow", "stage", "source", "message", "fields"]


def objects(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all(list(one) == KEYS for one in found)
    return found


def test_a_line_says_when_where_and_of_which_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run", "flow", "stage"):
        monkeypatch.setattr(DOING, name, None)
    logger = logging.Logger("tasks.crawl")
    logger.addHandler(JsonLines(sys.stderr))
    night = recorded(Root(tmp_path), RUN, [], flow="nightly")
    with run_as(RUN), night as record, record.stage("crawl"):
        logger.warning("%s: two\nlines :bug: \x1b[31m", "dir:a", extra={"source": "dir:a", "tried": 2})
        try:
            raise OSError("disk")
        except OSError:
            logger.exception("failed")
    first, second = objects(capsys.readouterr().err)
    assert first.pop("time").startswith("20")
    assert first == {
        "level": "warning", "run": RUN, "flow": "nightly", "stage": "crawl",
        "source": "dir:a", "message": "dir:a: two\nlines :bug: \x1b[31m",
        "fields": {"logger": "tasks.crawl", "tried": 2},
    }  # fmt: skip
    assert "OSError: disk" in second["fields"]["error"]


def test_a_process_of_a_worker_has_the_runs_id_from_its_first_line_on() -> None:
    code = (
        "from flows.commands.open_formats.json_log import json_line; from flows.run_record import this_run;"
        "import subprocess, sys, time; print(json_line('info', 'first')); print(this_run(), flush=True);"
        "time.sleep(1.1); more = 'from flows.run_record import this_run; print(this_run())';"
        "subprocess.run([sys.executable, '-c', more], check=True)"
    )
    environment = {**os.environ, "PREFECT__FLOW_RUN_ID": "0198f0de-1111-7222-8333-94440055aa66"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    line, run, below = done.stdout.splitlines()
    assert json.loads(line)["run"] == run == below
    assert run.endswith("-55aa66")
    assert run_of_process() is None


@pytest.mark.parametrize(
    "extra",
    [{"logger": 1}, {"level": 2}, {"at": 3}, {"d": {("a", 1): 2}}, {"n": float("nan")}, {"source": {1}}],
)
def test_no_field_costs_a_line(extra: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("tasks.crawl")
    logger.addHandler(JsonLines(sys.stderr))
    logger.warning("hi", extra=extra)
    (line,) = objects(capsys.readouterr().err)
    assert line["message"] == "hi"
    assert line["source"] or set(extra) <= set(line["fields"])


def test_what_a_command_says_aside_is_json_too(tmp_path: Path) -> None:
    done = skillery("search", "bread", "--root", str(tmp_path), SKILLERY_LOG_FORMAT="json")
    (said,) = objects(done.stderr)
    assert (done.returncode, said["level"]) == (1, "error")
    assert said["message"].startswith("skillery: nothing is served")


def test_another_format_is_named(tmp_path: Path) -> None:
    done = skillery("status", "--root", str(tmp_path), SKILLERY_LOG_FORMAT="xml")
    assert (done.returncode, "SKILLERY_LOG_FORMAT" in done.stderr) == (2, True)


@pytest.mark.parametrize("quiet", slow_but({False}, [False, True]))
def test_a_run_logs_json_with_its_id_and_quiet_nothing_but_warnings(quiet: bool, tmp_path: Path) -> None:
    arguments = ["run", "--source", "dir:/no/such/folder", "--root", str(tmp_path / "root"), "--json"]
    done = skillery(*arguments, *["--quiet"] * quiet, SKILLERY_LOG_FORMAT="json")
    assert done.returncode == 1
    said, run = objects(done.stderr), json.loads(done.stdout)["run_id"]
    assert {one["run"] for one in said} == {run}
    assert {one["level"] for one in said} <= ({"warning", "error"} if quiet else {"info", "warning", "error"})
    assert quiet or "dir:/no/such/folder" in {one["source"] for one in said if one["stage"] == "crawl"}
