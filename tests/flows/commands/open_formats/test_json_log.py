from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.commands.open_formats.json_log import DOING, JsonLines, run_of_process
from flows.run_record import recorded, run_as
from storage.root import Root
from tests.support.command import skillery
from tests.support.paths import PROJECT
from tests.support.processes import slow_but

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
    with (
        run_as("20260203T021500-abcdef"),
        recorded(Root(tmp_path), "20260203T021500-abcdef", [], flow="nightly") as record,
        record.stage("crawl"),
    ):
        logger.warning("%s: two\nlines :bug: \x1b[31m", "dir:a", extra={"source": "dir:a", "tried": 2})
        try:
            raise OSError("disk")
        except OSError:
            logger.exception("failed")
    first, second = objects(capsys.readouterr().err)
    assert first.pop("time").startswith("20")
    assert first == {
        "level": "warning", "run": "20260203T021500-abcdef", "flow": "nightly", "stage": "crawl",
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
