from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

_FILE = Path(__file__).resolve().parents[2] / "prefect.yaml"
_DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(_FILE.read_text("utf-8"))["deployments"]
_NAMES = [d["name"] for d in _DEPLOYMENTS]

pytestmark = pytest.mark.prefect


@pytest.fixture(params=_DEPLOYMENTS, ids=_NAMES)
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_the_three_deployments_are_there() -> None:
    assert _NAMES == ["nightly-reindex", "nightly-evaluation", "backfill"]


def test_each_entrypoint_is_a_flow_that_takes_the_parameters(deployment: dict[str, Any]) -> None:
    path, _, name = deployment["entrypoint"].partition(":")
    flow = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    required = set(flow.parameters.required or [])
    missing = required - deployment["parameters"].keys()
    stand_in = dict.fromkeys(missing, "2026-01-01")
    flow.validate_parameters({**deployment["parameters"], **stand_in})
    assert flow.description


def test_each_runs_one_at_a_time_in_utc(deployment: dict[str, Any]) -> None:
    assert deployment["concurrency_limit"]["limit"] == 1
    assert all(schedule["timezone"] == "UTC" for schedule in deployment["schedules"])
    assert bool(deployment["schedules"]) is (deployment["name"] != "backfill")


def test_the_evaluation_is_triggered_by_what_index_emits() -> None:
    from flows.index import PUBLISHED

    triggers = next(d["triggers"] for d in _DEPLOYMENTS if d["name"] == "nightly-evaluation")
    assert triggers[0]["expect"] == [PUBLISHED]
