"""Registers the automation that tells somebody when a deployment of Skillery fails."""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from storage.errors import WrongInput

NAME = "skillery-failed"
_STATES = {"prefect.flow-run.Failed", "prefect.flow-run.Crashed", "prefect.flow-run.TimedOut"}
_SUBJECT = "Skillery: {{ deployment.name }} {{ flow_run.state.name }}"
_BODY = "{{ flow_run.name }}: {{ flow_run.state.message }}\n{{ flow_run | ui_url }}"


def register_alert(block: str) -> str:
    """Have the server notify through a block whenever a run of a deployment tagged `skillery` fails.

    Registered again, it is brought up to date. Without it nothing is sent.

    Args:
        block: The notification block as `type/name`, e.g. `slack-webhook/skillery`.

    Returns:
        `created` or `updated`.

    Raises:
        WrongInput: There is no server, or it has no such block.
    """
    if not PREFECT_API_URL.value():
        msg = "there is no server that could tell anybody: set PREFECT_API_URL to yours"
        raise WrongInput(msg)
    with get_client(sync_client=True) as client:
        wanted = _automation(_block_id(client, block))
        found = client.read_automations_by_name(NAME)
        if not found:
            client.create_automation(wanted)
            return "created"
        # Somebody may have switched it off.
        client.update_automation(found[0].id, wanted.model_copy(update={"enabled": found[0].enabled}))
        return "updated"


def _automation(block_id: UUID) -> AutomationCore:
    return AutomationCore(
        name=NAME,
        description="Tells through a notification block that a nightly, an evaluation or another run failed.",
        trigger=EventTrigger(
            expect=_STATES,
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            # Of a deployment, so that a failed stage of it is not told twice.
            match_related=[
                ResourceSpecification({
                    "prefect.resource.role": "tag", "prefect.resource.id": "prefect.tag.skillery",
                }),
                ResourceSpecification({"prefect.resource.role": "deployment"}),
            ],
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[SendNotification(block_document_id=block_id, subject=_SUBJECT, body=_BODY)],
    )  # fmt: skip


def _block_id(client: SyncPrefectClient, block: str) -> UUID:
    kind, _, name = block.partition("/")
    try:
        return client.read_block_document_by_name(name, kind).id
    except ObjectNotFound as error:
        msg = (
            f"the server has no notification block {block!r}: make one on its page Blocks, "
            "and name it TYPE/NAME as `prefect block ls` does"
        )
        raise WrongInput(msg) from error
