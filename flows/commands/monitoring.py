"""Monitoring of a root: Prometheus metrics read from its files, and alerts by a Prefect server."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from flows.commands.operate import UNLISTED, root_status
from storage.errors import SkilleryError, WrongInput
from storage.root import Root
from storage.schemas import SCHEMA_VERSION
from storage.state import read_runs, runs_under_way

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.events.schemas.automations import AutomationCore

_SECONDS_KEPT = 30.0  # one reading of an S3 root costs some hundred requests
_RUNS = 30  # the last runs, in which the last of each flow is looked for
_SIZES_KEPT = timedelta(minutes=10)  # to walk a root of a million files takes seconds
_STATES = ("complete", "partial", "refused", "failed", "cancelled", "interrupted", "died")


class RootCollector(Collector):
    """The figures of `skillery status` as gauges, read at most every 30 seconds.

    If the root cannot be read, `skillery_readable` is 0 and the only gauge. `clock` counts monotonic seconds.
    """

    def __init__(
        self, root: Root, *, now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._root, self._now, self._clock = root, now, clock
        self._lock = threading.Lock()
        self._kept: tuple[float, list[Metric]] | None = None
        self._sizes: tuple[datetime, dict[str, float]] | None = None

    def collect(self) -> Iterable[Metric]:
        """Return the metrics, for the registry."""
        with self._lock:
            if self._kept is None or self._clock() - self._kept[0] > _SECONDS_KEPT:
                self._kept = self._clock(), self._read()
            return self._kept[1]

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering reads no root."""
        return []

    def _read(self) -> list[Metric]:
        try:
            now, status = self._now(), root_status(self._root)
            begun = runs_under_way(self._root, now)
            living = {run["flow"] for run in begun if run["state"] == "running"}
            dead = [run for run in begun if run["state"] == "died"]
            found = [
                *_status(status, now),
                *_flows(status["last_good"], living, now),
                *_last_runs([*dead, *read_runs(self._root, _RUNS)]),
                _labelled("disk_bytes", "Bytes below each folder of the root.", "part", self._disk(now)),
                _build(),
            ]
        except SkilleryError:
            return [_gauge("readable", "1 where the root can be read.", 0)]
        return [_gauge("readable", "1 where the root can be read.", 1), *found]

    def _disk(self, now: datetime) -> dict[str, float]:
        if self._sizes is None or now - self._sizes[0] > _SIZES_KEPT:
            self._sizes = now, {part: float(n) for part, n in self._root.sizes().items()}
        return self._sizes[1]


def serve_metrics(root: Root, address: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve a root's metrics under /metrics from threads of this process.

    Port 0 takes a free port. Returns the port and a function that ends the server; raises `WrongInput` if it
    cannot listen there.
    """
    registry = CollectorRegistry()
    registry.register(RootCollector(root))
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        msg = f"--address {address} --port {port}: cannot listen there ({error.strerror or error})"
        raise WrongInput(msg) from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), end


def _status(status: dict[str, Any], now: datetime) -> Iterator[Metric]:
    served = InfoMetricFamily("skillery_served", "The version that answers.")
    if status["served"] is not None:
        served.add_metric([], {"version": status["served"]})
        age = _age(status["published_at"], now)
        yield _gauge("served_age_seconds", "Seconds since it was published.", age)
    yield served
    counts, dropped = status["counts"], status["dropped"]
    of_served = {kind: n for kind, n in (status["served_counts"] or {}).items() if n is not None}
    yield _labelled("served_rows", "Rows that are served, by kind.", "kind", of_served)
    yield _labelled("rows", "Rows that the corpus holds, by kind.", "kind", counts)
    yield _labelled("dropped", "Documents left out by the runs, by reason.", "reason", dropped)
    # No run reads an unlisted source: its age would grow for ever.
    sources = {s["source"]: s for s in status["sources"] if s["state"] != UNLISTED}
    ages = {
        spec: _age(read, now)
        for spec, s in sources.items()
        if (read := s["last_read"] or s["last_complete"])  # one of them alone stands in older records
    }
    yield _labelled("source_age_seconds", "Seconds since a source could be read.", "source", ages)
    stale = {spec: float(s["stale_since"] is not None) for spec, s in sources.items()}
    yield _labelled("source_stale", "1 where a source could not be read last time.", "source", stale)


def _age(time: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(time)).total_seconds()


def _flows(good: dict[str, dict[str, Any]], living: set[str], now: datetime) -> Iterator[Metric]:
    ages = {flow: _age(run["ended_at"], now) for flow, run in good.items()}
    said = "Seconds since the flow's last run that was complete or partial ended."
    yield _labelled("last_success_age_seconds", said, "flow", ages)
    took = {flow: run["seconds"] for flow, run in good.items()}
    yield _labelled("last_success_duration_seconds", "What that run took.", "flow", took)
    flows = {flow: float(flow in living) for flow in {*good, *living}}
    yield _labelled("running", "1 while a run of the flow is under way.", "flow", flows)


def _build() -> Metric:
    found = InfoMetricFamily("skillery_build", "The program that reads the root.")
    told = {"version": metadata.version("skillery"), "schema_version": str(SCHEMA_VERSION)}
    found.add_metric([], {**told, "python": platform.python_version()})
    return found


def _last_runs(runs: list[dict[str, Any]]) -> Iterator[Metric]:
    """Yield figures of the last run of each flow, so that a good run does not hide another flow's failure."""
    last: dict[str, dict[str, Any]] = {}
    for run in runs:
        last.setdefault(run.get("flow", "nightly"), run)  # old records name no flow
    began = {f: datetime.fromisoformat(r["started_at"]).timestamp() for f, r in last.items()}
    yield _labelled("last_run_started_seconds", "When the flow's last run began, Unix time.", "flow", began)
    vectors = {f: r["vectors_new"] for f, r in last.items()}
    yield _labelled("last_run_vectors", "Texts that it encoded.", "flow", vectors)
    states = {f: {s: float(r["state"] == s) for s in _STATES} for f, r in last.items()}
    yield _by_flow("last_run_state", "1 for the state of the flow's last run.", "state", states)
    seconds = {f: r["seconds"] for f, r in last.items()}
    yield _by_flow("last_run_seconds", "What its stages took.", "stage", seconds)
    failed = {f: {c["check"]: float(not c["passed"]) for c in r["checks"]} for f, r in last.items()}
    yield _by_flow("last_run_check_failed", "1 for a check of the gate that failed.", "check", failed)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"skillery_{name}", text, value=value)


def _labelled(name: str, text: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"skillery_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _by_flow(name: str, text: str, label: str, values: dict[str, dict[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"skillery_{name}", text, labels=["flow", label])
    for flow, of_flow in values.items():
        for key, value in of_flow.items():
            family.add_metric([flow, key], value)
    return family


NAME = "skillery-failed"
_FAILED_STATES = {"prefect.flow-run.Failed", "prefect.flow-run.Crashed", "prefect.flow-run.TimedOut"}
_SUBJECT = "Skillery: {{ deployment.name }} {{ flow_run.state.name }}"
_BODY = "{{ flow_run.name }}: {{ flow_run.state.message }}\n{{ flow_run | ui_url }}"


def register_alert(block: str) -> str:
    """Register an automation that notifies a block when a run of a deployment tagged `skillery` fails.

    `block` is a notification block as `type/name`, e.g. `slack-webhook/skillery`. An automation that exists
    is updated. Returns `created` or `updated`; raises `WrongInput` if there is no server, or it has no such
    block.
    """
    from prefect.client.orchestration import get_client  # noqa: PLC0415 (Prefect: only this command asks it)
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415

    if not PREFECT_API_URL.value():
        raise WrongInput("there is no server that could tell anybody: set PREFECT_API_URL to yours")
    with get_client(sync_client=True) as client:
        wanted = _automation(_block_id(client, block))
        found = client.read_automations_by_name(NAME)
        if not found:
            client.create_automation(wanted)
            return "created"
        # An operator may have disabled it: that stays.
        client.update_automation(found[0].id, wanted.model_copy(update={"enabled": found[0].enabled}))
        return "updated"


def _automation(block_id: UUID) -> AutomationCore:
    from prefect.events.actions import SendNotification  # noqa: PLC0415
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture  # noqa: PLC0415
    from prefect.events.schemas.events import ResourceSpecification  # noqa: PLC0415

    return AutomationCore(
        name=NAME,
        description="Tells through a notification block that a nightly, an evaluation or another run failed.",
        trigger=EventTrigger(
            expect=_FAILED_STATES,
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            # Only runs of deployments: a failed subflow is not reported twice.
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
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415

    kind, _, name = block.partition("/")
    try:
        return client.read_block_document_by_name(name, kind).id
    except ObjectNotFound as error:
        raise WrongInput(
            f"the server has no notification block {block!r}: make one on its page Blocks, "
            "and name it TYPE/NAME as `prefect block ls` does"
        ) from error
