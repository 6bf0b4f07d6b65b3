"""Lineage of a run as OpenLineage's events: what each stage read and wrote, and how it ended.

`SKILLERY_OPENLINEAGE` names who is told: a server's URL, or `file:PATH`, to which a line an event is added.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.settings import load_settings
from storage.errors import SkilleryError, WrongInput
from storage.lance.served import read_served
from storage.partitions import Manifest
from storage.root import Root
from tasks.crawl.source.identity import hide_credentials, shown_spec

if TYPE_CHECKING:  # it comes with an extra, and takes half a second
    from openlineage.client.event_v2 import InputDataset, OutputDataset

log = logging.getLogger(__name__)
_NAMESPACE = "skillery"
_PATIENCE = 2.0  # seconds that a receiver may take, and that the end of a run waits for it
# What stages read and write; what is not a folder of the root is the sources.
_SOURCES = "sources"
_STAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "crawl": ((_SOURCES,), ("raw/documents", "raw/listings")),
    "refine": (("raw/documents",), ("documents", "dropped")),
    "parse": (("documents",), ("nodes", "edges")),
    "index": (("documents", "nodes"), ("lance/skills", "lance/nodes")),
    "compact": (("lance/skills", "lance/nodes"), ("lance/skills", "lance/nodes")),
    "backfill": (("raw/documents",), ()),
    "induce": (("trajectories",), ("induced/skills", "induced/dropped", "lance/induced")),
}
_ENDS = {"complete": "COMPLETE", "partial": "COMPLETE", "cancelled": "ABORT", "interrupted": "ABORT"}
_Emit = Callable[[], None]


def require_openlineage() -> None:
    """Raise `WrongInput` where lineage is asked for and its client is missing, or nobody is named."""
    target = load_settings().openlineage
    if target and util.find_spec("openlineage") is None:
        msg = "SKILLERY_OPENLINEAGE is set, and its client is not installed: pip install '.[openlineage]'"
        raise WrongInput(msg)
    if target and not target.startswith(("file:", "http://", "https://")):
        raise WrongInput(f"SKILLERY_OPENLINEAGE={hide_credentials(target)} is neither a URL nor file:PATH")


def flow_run_id(run_id: str) -> str:
    """Return the id of the Prefect flow run that this is; of another run one that is made of its own id."""
    if "prefect.context" in sys.modules:
        from prefect.context import FlowRunContext  # noqa: PLC0415 (commands do without Prefect)

        context = FlowRunContext.get()
        if context is not None and context.flow_run is not None:
            return str(context.flow_run.id)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, run_id))


class Lineage:
    """Tells the receiver of a run, from a thread of its own: one that is slow or dead costs the run nothing.

    Args:
        root: The root that the run writes to.
        record: Of the run: `run_id`, `flow_run`, `flow`, `specs`.
    """

    def __init__(self, root: Root, record: Mapping[str, Any]) -> None:
        self._root, self._record = root, dict(record)
        self._todo: queue.SimpleQueue[_Emit | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._emit_all, daemon=True, name="skillery-lineage")
        self._thread.start()
        self._put("START", None)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Tell that a stage starts, and how it ended."""
        self._put("START", name)
        try:
            yield
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._put("ABORT" if interrupted else "FAIL", name, message=str(error) or type(error).__name__)
            raise
        self._put("COMPLETE", name, rows=self._rows(name))

    def end(self, record: Mapping[str, Any]) -> None:
        """Tell how the run ended, what it left out, and what the gate found; wait two seconds at most."""
        self._put(_ENDS.get(record["state"], "FAIL"), None, ended=record)
        self._todo.put(None)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():  # the one under way is no longer queued, and the last stands for none
            log.warning("lineage: the receiver is too slow for %d events of this run", self._todo.qsize())

    def end_of(self, record: Mapping[str, Any]) -> None:
        """Tell how an earlier run ended that could not say so itself; if it died, its stage did."""
        if record["state"] == "died" and (stage := record.get("doing")):
            self._put("FAIL", stage, of=record, message=record["message"])
        self._put(_ENDS.get(record["state"], "FAIL"), None, of=record, ended=record)

    def _rows(self, stage: str) -> dict[str, int]:
        """Return the rows of the tables that a stage wrote, and of what is served."""
        try:
            found = {}
            for table in _STAGES.get(stage, ((), ()))[1]:
                if table.startswith("lance/"):
                    continue
                manifest = Manifest(self._root, table)
                files = (
                    [f"dropped/{self._record['run_id']}.parquet"] if table == "dropped" else manifest.files()
                )
                seals = [manifest.seal(file) for file in files]
                found[table] = sum(seal.rows or 0 for seal in seals if seal)
            served = read_served(self._root)
            counts = (served and served.counts(self._root)) or {}
            names = {"documents": "lance/skills", "nodes": "lance/nodes"}
            found |= {names[what]: n for what, n in counts.items() if n is not None}
        except SkilleryError:
            return {}
        return found

    def _put(
        self, state: str, stage: str | None, *, of: Mapping[str, Any] | None = None,
        message: str | None = None, rows: Mapping[str, int] | None = None,
        ended: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        now, run = datetime.now(UTC).isoformat(), dict(of or self._record)
        versions = _versions(self._root) if state == "COMPLETE" and stage else {}

        def emit() -> None:
            client = _client()
            event = _event(
                self._root, state, stage, now, run, message=message, rows=rows or {}, versions=versions,
                ended=ended,
            )  # fmt: skip
            client.emit(event)

        self._todo.put(emit)

    def _emit_all(self) -> None:
        told = False
        while (emit := self._todo.get()) is not None:
            try:
                emit()
            except Exception as error:
                if not told:
                    log.warning("lineage is not told: %s", hide_credentials(str(error))[:300])
                told = True


_clients: dict[str, Any] = {}


def _client() -> Any:  # noqa: ANN401 (its library comes with an extra)
    from openlineage.client import OpenLineageClient, set_producer  # noqa: PLC0415

    target = load_settings().openlineage
    if target not in _clients:
        set_producer(f"urn:skillery:{metadata.version('skillery')}")
        transport: dict[str, Any] = {
            "type": "http", "url": target, "timeout": _PATIENCE, "retry": {"total": 0, "connect": 0}
        }  # fmt: skip
        if target.startswith("file:"):
            path = Path(target.removeprefix("file:").removeprefix("//")).expanduser()
            path.parent.mkdir(parents=True, exist_ok=True)
            transport = {"type": "file", "log_file_path": str(path), "append": True}
        _clients[target] = OpenLineageClient(config={"transport": transport})
    return _clients[target]


def _versions(root: Root) -> dict[str, int]:
    try:
        served = read_served(root)
    except SkilleryError:
        return {}
    return {f"lance/{name}": version for name, version in served.tables().items()} if served else {}


def _event(
    root: Root, state: str, stage: str | None, at: str, run: Mapping[str, Any], *, message: str | None,
    rows: Mapping[str, int], versions: Mapping[str, int], ended: Mapping[str, Any] | None,
) -> Any:  # noqa: ANN401  # fmt: skip
    """Return one event of a stage, or of the whole run where `stage` is None."""
    from openlineage.client import event_v2, facet_v2  # noqa: PLC0415

    whole = run.get("flow_run") or flow_run_id(run["run_id"])
    facets: dict[str, Any] = {}
    if stage is not None:
        parent = facet_v2.parent_run
        facets["parent"] = parent.ParentRunFacet(parent.Run(whole), parent.Job(_NAMESPACE, run["flow"]))
    said = message or (ended or {}).get("message")
    if state in ("FAIL", "ABORT") and said:
        facets["errorMessage"] = facet_v2.error_message_run.ErrorMessageRunFacet(
            hide_credentials(said), "python"
        )
    if ended is not None:
        told = {"run_id": run["run_id"], "state": ended["state"], "dropped": ended["dropped"]}
        facets["skillery_run"] = facet_v2.RunFacet().with_additional_properties(**told)
    kind = facet_v2.job_type_job.JobTypeJobFacet("BATCH", "SKILLERY", "TASK" if stage else "FLOW")
    reads, writes = _STAGES.get(stage or "", ((), ()))
    inputs = [one for name in reads for one in _read(root, name, run["specs"])]
    if ended is not None and ended["checks"]:
        inputs = [_checked(root, ended["checks"])]
    own = str(uuid.uuid5(uuid.UUID(whole), stage)) if stage else whole
    return event_v2.RunEvent(
        eventTime=at,
        run=event_v2.Run(own, facets),
        job=event_v2.Job(_NAMESPACE, f"{run['flow']}.{stage}" if stage else run["flow"], {"jobType": kind}),
        producer=f"urn:skillery:{metadata.version('skillery')}",
        eventType=event_v2.RunState[state],
        inputs=inputs,
        outputs=[_written(root, name, rows.get(name), versions.get(name)) for name in writes],
    )


def _place(root: Root, table: str) -> tuple[str, str]:
    """Return the namespace and the name of a table, as OpenLineage names files and objects."""
    if root.uri.startswith("s3://"):
        bucket, _, prefix = root.uri.removeprefix("s3://").partition("/")
        return f"s3://{bucket}", f"{prefix}/{table}".strip("/")
    return "file", f"{root.uri}/{table}"


def _read(root: Root, name: str, specs: Sequence[str]) -> list[InputDataset]:
    from openlineage.client.event_v2 import InputDataset  # noqa: PLC0415

    if name == _SOURCES:
        return [InputDataset(f"{_NAMESPACE}-sources", hide_credentials(shown_spec(spec))) for spec in specs]
    return [InputDataset(*_place(root, name))]


def _checked(root: Root, checks: Sequence[Mapping[str, Any]]) -> InputDataset:
    """Return the table of skills with what the gate found of it."""
    from openlineage.client.event_v2 import InputDataset  # noqa: PLC0415
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality  # noqa: PLC0415

    found = [
        quality.Assertion(
            assertion=check["check"], success=bool(check["passed"]), actual=str(check.get("value")),
            expected=str(check.get("limit")),
        )
        for check in checks
    ]  # fmt: skip
    facet = quality.DataQualityAssertionsDatasetFacet(found)
    return InputDataset(*_place(root, "lance/skills"), inputFacets={"dataQualityAssertions": facet})


def _written(root: Root, table: str, rows: int | None, version: int | None) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset  # noqa: PLC0415
    from openlineage.client.facet_v2 import (  # noqa: PLC0415
        dataset_version_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    from flows.commands.open_formats.schema import schema_told  # noqa: PLC0415

    columns = schema_told(table)["tables"][0]["columns"]
    fields = [schema_dataset.SchemaDatasetFacetFields(c["column"], c["type"], c["meaning"]) for c in columns]
    facets: dict[str, Any] = {"schema": schema_dataset.SchemaDatasetFacet(fields)}
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(version))
    counted: dict[str, Any] = {}
    if rows is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        counted["outputStatistics"] = statistics
    return OutputDataset(*_place(root, table), facets=facets, outputFacets=counted)
