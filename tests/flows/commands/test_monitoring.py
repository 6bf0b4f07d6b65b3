from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from flows.commands.monitoring import RootCollector, serve_metrics
from flows.commands.operate import root_status
from flows.run_record import recorded
from storage.errors import GateRefused, WrongInput
from storage.lance.served import require_served
from storage.locks import writer_lock
from storage.root import Root
from storage.state import write_run, write_source
from storage.usage import logged_searches, read_usage
from tests.support.command import MAIN, Ask
from tests.support.paths import PROJECT
from tests.support.roots.hand_written import BEES, BREAD, SKILLS
from tests.support.roots.skill_root import Export, SkillRoot
from tests.support.serving import ask_http, modern_call, serving_here

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


def test_a_refresh_that_goes_well_hides_no_failed_night_and_older_records_without_a_flow_are_nightlies(
    tmp_path: Path,
) -> None:
    root = Root(tmp_path)
    with suppress(InterruptedError), recorded(root, "r1", ["dir:a"], flow="nightly"):
        raise InterruptedError
    with recorded(root, "r2", ["dir:a"], flow="refresh-one") as record:
        older = {key: value for key, value in record.as_dict().items() if key != "flow"}
    found = values(root)
    assert found["skillery_last_run_state nightly failed"] == 1
    assert found["skillery_last_run_state refresh-one complete"] == 1
    assert [run["flow"] for run in root_status(root)["runs"]] == ["refresh-one", "nightly"]
    write_run(root, {**older, "state": "complete"})
    assert values(root)["skillery_last_run_state nightly complete"] == 1


def test_an_empty_root_has_no_age_and_one_that_cannot_be_read_is_told_and_scraping_goes_on(
    tmp_path: Path,
) -> None:
    root = Root(tmp_path)
    found = values(root)
    assert found["skillery_readable"] == 1
    assert "skillery_served_age_seconds" not in found
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


def test_the_command_says_where_it_serves_and_ends_with_ctrl_c(served_bakery: SkillRoot) -> None:
    command = [*MAIN, "serve-metrics", "--port", "0", "--root", served_bakery.root.uri]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        at = process.stderr.readline().removeprefix("metrics at ").strip()
        try:
            with urllib.request.urlopen(at) as answer:  # noqa: S310 (our own)
                assert at.startswith("http://127.0.0.1:")
                assert b"skillery_served_info" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


NIGHT = "20260203T021500-abcdef"
HOUR = timedelta(hours=1)
PUBLISHED = {"version": "v-1", "published_at": "2026-01-01T00:00:00+00:00", "run_id": "1"}


def night(root: Root, error: Exception | None = None, state: str = "complete") -> None:
    source = {"source": "dir:a", "state": state}
    with suppress(Exception), recorded(root, NIGHT, ["dir:a"], flow="nightly") as record:
        record.sources = [source]
        if error is not None:
            raise error
    if state != "complete" or error is None:
        now, is_stale = datetime.now(UTC).isoformat(), state == "failed"
        times = {"last_read": None if is_stale else now, "stale_since": now if is_stale else None}
        write_source(root, "dir:a", {"state": state, "in_list": True, **times})


def died(root: Root) -> None:
    """Leave what a killed night does: the record of a run that holds no lock."""
    night(root)
    other = "20260204T021500-abcdef"
    with recorded(root, other, ["dir:a"], flow="nightly"):
        left = root.read(f"state/running/{other}.json")
    root.delete(f"state/runs/{other}.json")
    root.write(f"state/running/{other}.json", left)


def broken(root: Root) -> None:
    night(root)
    root.write("state/served.json", b"{")


REFUSED = GateRefused("rows is 1", [{"check": "rows", "passed": False, "value": 1, "limit": 2}])
# What happens to a root, how long ago, and what fires.
SITUATIONS: dict[str, tuple[Callable[[Root], object], timedelta, dict[str, int]]] = {
    "a quiet night": (night, HOUR, {}),
    "a limited night": (lambda root: night(root, state="limited"), HOUR, {}),
    "a refused night": (lambda root: night(root, REFUSED), HOUR, {"SkilleryRunFailed": 1}),
    "a failed night": (lambda root: night(root, OSError("disk")), HOUR, {"SkilleryRunFailed": 1}),
    "a killed night": (died, HOUR, {"SkilleryRunFailed": 1}),
    "no night for two days": (night, 48 * HOUR, {"SkilleryNightMissed": 1}),
    "a source that is away": (
        lambda root: night(root, state="failed"), HOUR, {"SkillerySourceStale": 1}
    ),
    "a source not read for four days": (
        night, 96 * HOUR, {"SkilleryNightMissed": 1, "SkillerySourceOld": 1}
    ),
    "a root that cannot be read": (broken, HOUR, {"SkilleryUnreadable": 1}),
}  # fmt: skip


def scraped(root: Root, ago: timedelta) -> list[dict[str, str]]:
    """Return what is scraped so long after now as series that stay as they are."""
    registry = CollectorRegistry()
    registry.register(RootCollector(root, now=lambda: datetime.now(UTC) + ago))
    return [
        {
            "series": f"{s.name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in s.labels.items())}}}",
            "values": f"{s.value}x750",
        }
        for family in registry.collect()
        for s in family.samples
    ]


def situation(series: list[dict[str, str]], at: str, fire: dict[str, int]) -> dict[str, Any]:
    samples = [{"labels": f'{{alertname="{name}"}}', "value": n} for name, n in fire.items()]
    expr = 'count by (alertname) (ALERTS{alertstate="firing"})'
    asked = {"expr": expr, "eval_time": at, "exp_samples": samples}
    return {"interval": "4m", "input_series": series, "promql_expr_test": [asked]}


def checked(tmp_path: Path, tests: list[dict[str, Any]]) -> None:
    """Let promtool run README's rules over situations."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package `prometheus` has it)")
    readme = (PROJECT / "flows/README.md").read_text("utf-8")
    (rules,) = re.findall(r"<!-- alerts -->\n```yaml\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (tmp_path / "rules.yml").write_text(rules)
    (tmp_path / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "2m", "tests": tests})
    )
    for command in ("check rules --lint-fatal rules.yml", "test rules tests.yml"):
        done = subprocess.run(
            ["promtool", *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_none_on_a_quiet_night(tmp_path: Path) -> None:
    tests = []
    for number, (happens, ago, fire) in enumerate(SITUATIONS.values()):
        happens(root := Root(tmp_path / f"{number}"))
        tests.append(situation(scraped(root, ago), "15m", fire))
    under_way = Root(tmp_path / "under way")
    night(under_way)
    with writer_lock(under_way, run="r2"), recorded(under_way, "r2", ["dir:a"], flow="nightly"):
        series = scraped(under_way, timedelta(0))
    tests += [situation(series, "11h", {}), situation(series, "13h", {"SkilleryRunStuck": 1})]
    tests.append(situation([], "15m", {"SkilleryNotScraped": 1}))
    night(never := Root(tmp_path / "never good"), OSError("disk"))
    tests.append(situation(scraped(never, HOUR), "37h", {"SkilleryNightNever": 1, "SkilleryRunFailed": 1}))
    checked(tmp_path, tests)


KEY = "ghp_" + "a8Kd02LmQz7Xw4Bn6Vt9Yc1Ue3Ri5Os8PjHf"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, minilm_export: Export) -> Iterator[SkillRoot]:
    """A root whose server, now ended, was asked in every way, texts kept."""
    root = SkillRoot.below(tmp_path_factory.mktemp("used"), minilm_export, {"bread": BREAD, "bees": BEES})
    root.publish()
    texts = {"SKILLERY_QUERY_LOG": "texts"}
    with patch.dict(os.environ, texts), serving_here(root.root.uri) as server:
        for words in ("knead bread dough", "knead the bread dough", f"zzz {KEY}", "zzz qqq"):
            assert ask_http(server, f"/api/search?q={words.replace(' ', '%20')}").status == 200
        ask_http(server, "/api/page?doc_id=local/market/bread&q=knead")
        ask_http(server, "/?q=bees")
        headers, body = modern_call(1, "search_skills", {"task": "bees and mites"})
        ask_http(server, "/mcp", body, **headers)
        asked = ask_http(server, "/metrics").body.decode()
        assert 'skillery_asked_total{action="search",fits="no",via="http"} 2.0' in asked
        assert "Never found" in ask_http(server, "/usage").body.decode()
    return root


def test_usage_tells_what_was_asked_found_and_used(used: SkillRoot, ask: Ask, tmp_path: Path) -> None:
    done = ask("install", "bread", "--to", str(tmp_path), "--root", used.root.uri)
    assert done.code == 0, done.stderr
    found = ask.told("usage", "--root", used.root.uri)
    (day,) = found["days"]
    assert (day["searches"], day["nothing_fits"], day["page"], day["install"]) == (6, 2, 1, 1)
    assert found["via"] == {"http": 5, "browser": 1, "mcp": 1, "command": 1}
    assert {group["times"] for group in found["not_found"]} == {1}
    assert found["skills"][0] == {"doc_id": "local/market/bread", "found": 4, "paged": 1, "installed": 1}
    assert found["never_found"]["of"] == 2
    printed = ask("usage", "--root", used.root.uri).stdout
    assert KEY not in printed
    assert "local/market/bread" in printed
    assert max(map(len, printed.splitlines())) < 100


def test_what_people_ask_becomes_probes(used: SkillRoot) -> None:
    logged = dict(logged_searches(used.root, datetime.now(UTC)))
    assert logged["knead bread dough"] == "local/market/bread"
    assert "zzz qqq" not in logged


def test_without_texts_usage_says_what_it_needs(tmp_path: Path, ask: Ask) -> None:
    found = ask.told("usage", "--root", str(tmp_path))
    assert (found["not_found"], "SKILLERY_QUERY_LOG=texts" in found["needs"]) == (None, True)
    assert "nothing was asked" in ask("usage", "--root", str(tmp_path)).stdout


def test_a_forgotten_skill_is_in_no_row(tmp_path: Path, minilm_export: Export, ask: Ask) -> None:
    root = SkillRoot.below(tmp_path, minilm_export, {"bread": BREAD, "bees": BEES})
    root.publish()
    ask("install", "bread", "--to", str(tmp_path / "skills"), "--root", root.root.uri)
    assert ask("forget", "local/market/bread", "--yes", "--root", root.root.uri).code == 0
    rows = read_usage(root.root, datetime.now(UTC))
    assert rows["action"].to_list() == ["install"]
    assert rows.filter(pl.col("doc_id").is_not_null()).is_empty()


def test_off_means_no_file(
    tmp_path: Path, minilm_export: Export, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLERY_QUERY_LOG", "off")
    root = SkillRoot.below(tmp_path, minilm_export, {"bread": BREAD})
    root.publish()
    ask("install", "bread", "--to", str(tmp_path / "skills"), "--root", root.root.uri)
    assert not (Path(root.root.uri) / "usage").exists()
