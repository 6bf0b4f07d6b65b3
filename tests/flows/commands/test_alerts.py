"""The alerts that README recommends, by Prometheus' own checker, on what is scraped in some situations."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from flows.commands.monitoring import RootCollector
from flows.run_record import recorded
from storage.errors import GateRefused
from storage.locks import writer_lock
from storage.root import Root
from storage.state import write_source
from tests.support.paths import PROJECT

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
        now = datetime.now(UTC).isoformat()
        read = None if state == "failed" else now
        stale = now if state == "failed" else None
        write_source(
            root, "dir:a", {"state": state, "in_list": True, "last_read": read, "stale_since": stale}
        )


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
