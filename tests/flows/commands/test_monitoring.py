from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from flows.commands.monitoring import RootCollector, serve_metrics
from flows.commands.operate import root_status
from flows.run_record import recorded, run_as, this_run
from storage.errors import WrongInput
from storage.lance.served import require_served
from storage.root import Root
from storage.state import write_run, write_source
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

_NOW = datetime(2026, 2, 3, 4, 0, tzinfo=UTC)


def values(root: Root, now: datetime = _NOW) -> dict[str, float]:
    """Return what is scraped, by name and labels."""
    registry = CollectorRegistry()
    registry.register(RootCollector(root, now=lambda: now))
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> dict[str, float]:
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {" ".join([s.name, *s.labels.values()]): s.value for s in samples}


def test_a_served_root_tells_its_version_age_and_size(served_bakery: SkillRoot) -> None:
    served = require_served(served_bakery.root)
    found = values(served_bakery.root, served.published_at + timedelta(hours=2))
    assert found["skillery_readable"] == 1
    assert found[f"skillery_served_info {served.version}"] == 1
    assert found["skillery_served_age_seconds"] == 7200
    assert found["skillery_rows documents"] == len(SKILLS)
    assert found["skillery_rows nodes"] > 6


def test_an_empty_root_has_no_age(tmp_path: Path) -> None:
    found = values(Root(tmp_path))
    assert found["skillery_readable"] == 1
    assert "skillery_served_age_seconds" not in found


def test_the_last_run_its_checks_and_each_source_are_told(tmp_path: Path) -> None:
    root = Root(tmp_path)
    complete, stale = "2026-02-03T03:00:00+00:00", "2026-02-03T02:00:00+00:00"
    write_source(root, "dir:a", {"state": "complete", "last_complete": complete, "stale_since": None})
    failed = {"state": "failed", "last_complete": None, "stale_since": stale}
    write_source(root, 'dir:"b"\n', {**failed, "in_list": True})
    write_source(root, "dir:removed", {**failed, "last_complete": complete, "in_list": False})
    with suppress(InterruptedError), recorded(root, "r1", ["dir:a"], flow="nightly") as record:
        with record.stage("crawl"):
            pass
        record.vectors_new = 7
        record.checks = [{"check": "ids", "passed": True}, {"check": "shrink", "passed": False}]
        raise InterruptedError
    found = values(root)
    assert found["skillery_source_age_seconds dir:a"] == 3600
    assert [found[f"skillery_source_stale {spec}"] for spec in ("dir:a", 'dir:"b"\n')] == [0, 1]
    assert not [name for name in found if "dir:removed" in name], "what is read no more is never late"
    assert [found[f"skillery_last_run_state nightly {s}"] for s in ("failed", "complete")] == [1, 0]
    assert [found[f"skillery_last_run_check_failed {c} nightly"] for c in ("ids", "shrink")] == [0, 1]
    assert found["skillery_last_run_vectors nightly"] == 7
    assert found["skillery_last_run_seconds nightly crawl"] >= 0


def test_a_refresh_that_goes_well_does_not_hide_that_the_night_failed(tmp_path: Path) -> None:
    root = Root(tmp_path)
    with suppress(InterruptedError), recorded(root, "r1", ["dir:a"], flow="nightly"):
        raise InterruptedError
    with recorded(root, "r2", ["dir:a"], flow="refresh-one"):
        pass
    found = values(root)
    assert found["skillery_last_run_state nightly failed"] == 1
    assert found["skillery_last_run_state refresh-one complete"] == 1
    assert [run["flow"] for run in root_status(root)["runs"]] == ["refresh-one", "nightly"]


def test_a_record_of_before_flows_were_named_is_a_nightlys(tmp_path: Path) -> None:
    root = Root(tmp_path)
    with recorded(root, "r1", ["dir:a"], flow="refresh-one") as record:
        older = {key: value for key, value in record.as_dict().items() if key != "flow"}
    write_run(root, {**older, "state": "complete"})
    assert values(root)["skillery_last_run_state nightly complete"] == 1


def test_a_run_has_the_id_that_is_set_for_it_or_one_by_its_time() -> None:
    with run_as("one"):
        assert this_run() == "one"
    assert re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{6}", this_run())


def test_a_root_that_cannot_be_read_is_told_and_scraping_goes_on(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.write("state/served.json", b"{")
    assert values(root) == {"skillery_readable": 0}


def test_a_root_is_looked_at_no_more_often_than_every_half_minute(tmp_path: Path) -> None:
    root, clock = Root(tmp_path), iter([0.0, 29.0, 31.0, 31.0])
    collector = RootCollector(root, clock=lambda: next(clock))
    first = collector.collect()
    assert collector.collect() is first
    assert collector.collect() is not first


def test_it_listens_on_this_machine_and_says_where_it_cannot(served_bakery: SkillRoot) -> None:
    port, end = serve_metrics(served_bakery.root, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            found = parsed(answer.read().decode())
        with pytest.raises(WrongInput, match=f"--port {port}: cannot listen"):
            serve_metrics(served_bakery.root, "127.0.0.1", port)
    finally:
        end()
    assert found["skillery_readable"] == 1


@pytest.mark.slow
def test_the_command_says_where_it_serves_and_ends_when_interrupted(served_bakery: SkillRoot) -> None:
    command = [
        sys.executable,
        "-c",
        "from flows.cli.main import main; main()",
        "serve-metrics",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        [*command, "--root", served_bakery.root.uri], stderr=subprocess.PIPE, text=True
    ) as done:
        assert done.stderr is not None
        at = re.fullmatch(r"metrics at (http://127\.0\.0\.1:\d+)/metrics\n", done.stderr.readline())
        assert at is not None
        with urllib.request.urlopen(f"{at[1]}/metrics") as answer:  # noqa: S310 (our own)
            assert b"skillery_served_info" in answer.read()
        done.send_signal(2)
        _, said = done.communicate()
    assert done.returncode == 130, said
