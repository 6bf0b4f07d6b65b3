from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import tenacity
import yaml

from storage.errors import WrongInput
from tests.support.paths import PROJECT

_FILE = PROJECT / "prefect.yaml"
_DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(_FILE.read_text("utf-8"))["deployments"]
_NAMES = [d["name"] for d in _DEPLOYMENTS]
_WITH_CRON = {"nightly-reindex", "nightly-evaluation", "compact"}
# What a second run would do again is not started while the first is under way.
_ONE_IS_ENOUGH = {"full-rebuild", "compact"}

pytestmark = pytest.mark.prefect


@pytest.fixture(params=_DEPLOYMENTS, ids=_NAMES)
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def _flow(deployment: dict[str, Any]) -> Any:  # noqa: ANN401 (a flow of some signature)
    path, _, name = deployment["entrypoint"].partition(":")
    return getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)


def test_the_seven_deployments_are_there() -> None:
    assert _NAMES == [
        "nightly-reindex", "nightly-evaluation", "backfill", "refresh-one", "full-rebuild", "compact",
        "induce-skills",
    ]  # fmt: skip


def test_no_form_asks_for_what_the_run_makes_itself(deployment: dict[str, Any]) -> None:
    flow = _flow(deployment)
    assert "run_id" not in flow.parameters.properties
    # A template would overwrite the name that the form was given.
    assert callable(flow.flow_run_name)


def test_each_entrypoint_is_a_flow_that_takes_the_parameters(deployment: dict[str, Any]) -> None:
    flow = _flow(deployment)
    required = set(flow.parameters.required or [])
    missing = required - deployment["parameters"].keys()
    stand_in = dict.fromkeys(missing, "2026-01-01")
    flow.validate_parameters({**deployment["parameters"], **stand_in})
    assert flow.description


def test_the_form_explains_each_of_its_fields(deployment: dict[str, Any]) -> None:
    fields = _flow(deployment).parameters.properties
    assert all(len(field.get("description", "")) > 10 for field in fields.values()), fields
    assert all({"type", "anyOf", "enum"} & field.keys() for field in fields.values()), fields


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("refresh-one", {"target": ""}),
        ("refresh-one", {"target": "a/b", "index": "nodes"}),
        ("full-rebuild", {"wait_minutes": -1}),
        ("compact", {"wait_minutes": "soon"}),
        ("induce-skills", {"form": "chats"}),
        ("induce-skills", {"support": 0}),
        ("nightly-reindex", {"wait_minutes": -1}),
    ],
)
def test_a_form_filled_in_wrongly_is_refused_before_anything_runs(
    name: str, parameters: dict[str, Any]
) -> None:
    from prefect.exceptions import ParameterTypeError

    with pytest.raises(ParameterTypeError):
        _flow(_DEPLOYMENTS[_NAMES.index(name)]).validate_parameters(parameters)


def test_what_writes_at_a_set_time_waits_for_a_writer_that_is_under_way() -> None:
    for deployment in (d for d in _DEPLOYMENTS if d["name"] in _WITH_CRON - {"nightly-evaluation"}):
        field = _flow(deployment).parameters.properties["wait_minutes"]
        assert deployment["parameters"].get("wait_minutes", field["default"]) >= 60


def test_each_runs_one_at_a_time_in_utc(deployment: dict[str, Any]) -> None:
    limit = deployment["concurrency_limit"]
    assert limit["limit"] == 1
    assert (limit["collision_strategy"] == "CANCEL_NEW") is (deployment["name"] in _ONE_IS_ENOUGH)
    assert all(schedule["timezone"] == "UTC" for schedule in deployment["schedules"])
    assert bool(deployment["schedules"]) is (deployment["name"] in _WITH_CRON)


def test_a_schedule_that_was_paused_stays_paused_since_it_has_a_name(deployment: dict[str, Any]) -> None:
    # Prefect makes schedules anew when a deployment is registered again, active, unless all have a slug.
    assert all(schedule["slug"] and "active" not in schedule for schedule in deployment["schedules"])


def test_each_says_what_it_is_for(deployment: dict[str, Any]) -> None:
    assert len(deployment["description"]) > 80
    assert deployment["tags"][0] == "skillery"
    assert len(deployment["tags"]) == 2


def test_the_evaluation_is_triggered_by_what_index_emits() -> None:
    from flows.index import PUBLISHED

    triggers = next(d["triggers"] for d in _DEPLOYMENTS if d["name"] == "nightly-evaluation")
    assert triggers[0]["expect"] == [PUBLISHED]


def test_the_server_schedules_runs_of_a_cron(prefect_server: str) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    nightly = DeploymentScheduleCreate(schedule=CronSchedule(cron="15 2 * * *", timezone="UTC"))
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name("scheduled")
        made = client.create_deployment(flow_id, "cron", schedules=[nightly])
    # The client would try again for minutes what the server cannot do.
    body, kind = json.dumps({"min_runs": 1}).encode(), {"Content-Type": "application/json"}
    wanted = Request(f"{prefect_server}/deployments/{made}/schedule", body, kind)  # noqa: S310
    assert _answered(wanted) == 200


@tenacity.retry(
    retry=tenacity.retry_if_result(lambda status: status == 503),
    stop=tenacity.stop_after_delay(60),
    wait=tenacity.wait_fixed(0.5),
)
def _answered(wanted: Request) -> int:
    """Return the status of an answer; of a server that is busy with other tests (503) it is asked again."""
    try:
        with urlopen(wanted) as answer:  # noqa: S310 (the harness' own server)
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_without_a_block_no_alert_is_registered(prefect_server: str) -> None:
    from prefect.client.orchestration import get_client

    from flows.commands.monitoring import NAME, register_alert

    with pytest.raises(WrongInput, match="no notification block 'slack-webhook/nobody'"):
        register_alert("slack-webhook/nobody")
    with get_client(sync_client=True) as client:
        assert client.read_automations_by_name(NAME) == []


@pytest.fixture
def alerted(prefect_server: str) -> Iterator[Any]:
    """Register the alert and return its automation."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock
    from prefect.client.orchestration import get_client

    from flows.commands.monitoring import NAME, register_alert

    block = CustomWebhookNotificationBlock(name="a", url="http://127.0.0.1:9/", json_data={"a": "{{body}}"})
    block.save("skillery-test", overwrite=True)
    assert register_alert("custom-webhook/skillery-test") == "created"
    with get_client(sync_client=True) as client:
        (found,) = client.read_automations_by_name(NAME)
        yield found
        client.delete_automation(found.id)


def test_an_alert_is_registered_once_and_stays_switched_off_where_it_was(alerted: Any) -> None:  # noqa: ANN401
    from prefect.client.orchestration import get_client

    from flows.commands.monitoring import NAME, register_alert

    with get_client(sync_client=True) as client:
        client.pause_automation(alerted.id)
        assert register_alert("custom-webhook/skillery-test") == "updated"
        (again,) = client.read_automations_by_name(NAME)
    assert (again.id, again.enabled) == (alerted.id, False)


@pytest.mark.parametrize(
    ("event", "deployment", "tag", "told"),
    [
        ("Failed", True, "skillery", True),
        ("Crashed", True, "skillery", True),
        ("Completed", True, "skillery", False),
        ("Failed", False, "skillery", False),
        ("Failed", True, "bakery", False),
    ],
    ids=["failed", "crashed", "went well", "a stage of it", "another project's"],
)
def test_the_alert_tells_of_failed_runs_of_these_deployments_alone(
    alerted: Any,  # noqa: ANN401
    event: str,
    deployment: bool,
    tag: str,
    told: bool,
) -> None:
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import ReceivedEvent

    related = [{"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"}]
    if deployment:
        related += [{"prefect.resource.id": "prefect.deployment.1", "prefect.resource.role": "deployment"}]
    happened = ReceivedEvent.model_validate({
        "occurred": "2025-03-01T02:00:00Z", "id": "01890f4e-0000-7000-8000-000000000000", "related": related,
        "event": f"prefect.flow-run.{event}", "resource": {"prefect.resource.id": "prefect.flow-run.1"},
    })  # fmt: skip
    trigger = EventTrigger.model_validate(alerted.trigger.model_dump(mode="json"))
    assert trigger.covers(happened) is told
