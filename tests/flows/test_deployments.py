from __future__ import annotations

import importlib
from typing import Any

import pytest
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


def test_the_seven_deployments_are_there_and_what_index_emits_triggers_the_evaluation() -> None:
    from flows.index import PUBLISHED

    assert _NAMES == [
        "nightly-reindex", "nightly-evaluation", "backfill", "refresh-one", "full-rebuild", "compact",
        "induce-skills",
    ]  # fmt: skip
    assert _DEPLOYMENTS[1]["triggers"][0]["expect"] == [PUBLISHED]


def test_each_entrypoint_is_a_flow_that_takes_the_parameters_and_explains_each_field_of_its_form(
    deployment: dict[str, Any],
) -> None:
    flow = _flow(deployment)
    assert "run_id" not in flow.parameters.properties, "no form asks for what the run makes itself"
    # A template would overwrite the name that the form was given.
    assert callable(flow.flow_run_name)
    required = set(flow.parameters.required or [])
    missing = required - deployment["parameters"].keys()
    stand_in = dict.fromkeys(missing, "2026-01-01")
    flow.validate_parameters({**deployment["parameters"], **stand_in})
    assert flow.description
    fields = flow.parameters.properties
    assert all(len(field.get("description", "")) > 10 for field in fields.values()), fields
    assert all({"type", "anyOf", "enum"} & field.keys() for field in fields.values()), fields
    assert {fields[name].get("format") for name in {"start", "end"} & fields.keys()} <= {"date"}


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


def test_each_runs_one_at_a_time_in_utc_stays_paused_and_says_what_it_is_for(
    deployment: dict[str, Any],
) -> None:
    limit = deployment["concurrency_limit"]
    assert limit["limit"] == 1
    assert (limit["collision_strategy"] == "CANCEL_NEW") is (deployment["name"] in _ONE_IS_ENOUGH)
    assert all(schedule["timezone"] == "UTC" for schedule in deployment["schedules"])
    assert bool(deployment["schedules"]) is (deployment["name"] in _WITH_CRON)
    # Prefect makes schedules anew when a deployment is registered again, active, unless all have a slug.
    assert all(schedule["slug"] and "active" not in schedule for schedule in deployment["schedules"])
    assert len(deployment["description"]) > 80
    assert deployment["tags"][0] == "skillery"
    assert len(deployment["tags"]) == 2


def test_the_alert_is_registered_once_stays_switched_off_and_tells_of_failed_runs_of_ours_alone(
    prefect_server: str,
) -> None:
    from prefect.blocks.notifications import CustomWebhookNotificationBlock
    from prefect.client.orchestration import get_client
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import ReceivedEvent

    from flows.commands.monitoring import NAME, register_alert

    with pytest.raises(WrongInput, match="no notification block 'slack-webhook/nobody'"):
        register_alert("slack-webhook/nobody")
    block = CustomWebhookNotificationBlock(name="a", url="http://127.0.0.1:9/", json_data={"a": "{{body}}"})
    block.save("skillery-test", overwrite=True)
    with get_client(sync_client=True) as client:
        assert client.read_automations_by_name(NAME) == []
        assert register_alert("custom-webhook/skillery-test") == "created"
        (made,) = client.read_automations_by_name(NAME)
        client.pause_automation(made.id)
        assert register_alert("custom-webhook/skillery-test") == "updated"
        (again,) = client.read_automations_by_name(NAME)
        client.delete_automation(made.id)
    assert (again.id, again.enabled) == (made.id, False)
    trigger = EventTrigger.model_validate(made.trigger.model_dump(mode="json"))
    for event, resources, told in (
        ("Failed", ("tag.skillery", "deployment.1"), True),
        ("Crashed", ("tag.skillery", "deployment.1"), True),
        ("Completed", ("tag.skillery", "deployment.1"), False),
        ("Failed", ("tag.skillery",), False),  # a stage of it
        ("Failed", ("tag.bakery", "deployment.1"), False),  # another project's
    ):
        related = [
            {"prefect.resource.id": f"prefect.{one}", "prefect.resource.role": one.partition(".")[0]}
            for one in resources
        ]
        happened = ReceivedEvent.model_validate({
            "occurred": "2025-03-01T02:00:00Z", "id": "01890f4e-0000-7000-8000-000000000000",
            "related": related, "event": f"prefect.flow-run.{event}",
            "resource": {"prefect.resource.id": "prefect.flow-run.1"},
        })  # fmt: skip
        assert trigger.covers(happened) is told, (event, resources)
