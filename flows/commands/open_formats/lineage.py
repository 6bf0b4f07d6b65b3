"""Lineage of a run as OpenLineage's events: what each stage read and wrote, and how it ended.

`SKILLERY_OPENLINEAGE` names who is told: a server's URL, or `file:PATH`, to which a line an event is added.
The events are made here: to import OpenLineage's client takes six hundredths of a night without changes.
"""

from __future__ import annotations

import functools
import json
import logging
import queue
import sys
import threading
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from flows.settings import load_settings
from storage.errors import SkilleryError, WrongInput
from storage.lance.served import read_served
from storage.partitions import Manifest
from storage.root import Root
from tasks.crawl.source.identity import hide_credentials, shown_spec

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
_SPEC = "https://openlineage.io/spec/"
# The versions of OpenLineage's facets by name, as of its specification 2-0-2.
_FACETS = {
    "ParentRunFacet": "1-2-0", "ErrorMessageRunFacet": "1-0-1", "JobTypeJobFacet": "2-0-4",
    "SchemaDatasetFacet": "1-2-0", "DatasetVersionDatasetFacet": "1-0-1",
    "OutputStatisticsOutputDatasetFacet": "1-0-2", "DataQualityAssertionsDatasetFacet": "1-1-0",
}  # fmt: skip


def require_openlineage() -> None:
    """Raise `WrongInput` where lineage is asked for and nobody is named who could be told."""
    target = load_settings().openlineage
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

    It takes the run's root, and of its record `run_id`, `flow_run`, `flow` and `specs`.
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
        """Return the rows of the tables that a stage wrote: of Lance's, as they are served."""
        writes, run = _STAGES.get(stage, ((), ()))[1], self._record["run_id"]
        try:
            found = {}
            for table in writes:
                if table.startswith("lance/"):
                    continue
                manifest = Manifest(self._root, table)
                files = {f"dropped/{run}.parquet"} if table == "dropped" else manifest.files()
                if table.startswith("raw/"):  # its parts of other runs are many, and none is written again
                    files = {file for file in files if f"/run={run}/" in file}
                if (rows := manifest.rows(files)) is not None:
                    found[table] = rows
            if "lance/skills" in writes and (served := read_served(self._root)):
                counts = served.counts(self._root) or {}
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

        event = functools.partial(
            _event, self._root, state, stage, now, run, message=message, rows=rows or {}, versions=versions,
            ended=ended,
        )  # fmt: skip
        self._todo.put(lambda: _send(event()))

    def _emit_all(self) -> None:
        told = False
        while (emit := self._todo.get()) is not None:
            try:
                emit()
            except Exception as error:
                if not told:
                    log.warning("lineage is not told: %s", hide_credentials(str(error))[:300])
                told = True


def _send(event: dict[str, Any]) -> None:
    """Add an event as a line to the file that is told, or post it to the server."""
    target, line = load_settings().openlineage, json.dumps(event)
    if target.startswith("file:"):
        path = Path(target.removeprefix("file:").removeprefix("//")).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return
    place, kind = urlsplit(f"{target.rstrip('/')}/api/v1/lineage"), {"Content-Type": "application/json"}
    user, at, host = place.netloc.rpartition("@")
    if at:
        kind["Authorization"] = f"Basic {b64encode(unquote(user).encode()).decode()}"
    post = Request(place._replace(netloc=host).geturl(), line.encode(), kind)  # noqa: S310 (checked before)
    build_opener(_Staying).open(post, timeout=_PATIENCE).close()  # what it says may be without end


class _Staying(HTTPRedirectHandler):
    """Goes nowhere else: the password would go along, and the event would stay."""

    def redirect_request(self, *_: object) -> None:
        """Return nothing, by which the answer is an error."""


def _versions(root: Root) -> dict[str, int]:
    try:
        served = read_served(root)
    except SkilleryError:
        return {}
    return {f"lance/{name}": version for name, version in served.tables().items()} if served else {}


def _event(
    root: Root, state: str, stage: str | None, at: str, run: Mapping[str, Any], *, message: str | None,
    rows: Mapping[str, int], versions: Mapping[str, int], ended: Mapping[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """Return one event of a stage, or of the whole run where `stage` is None."""
    whole, facets = run.get("flow_run") or flow_run_id(run["run_id"]), dict[str, Any]()
    if stage is not None:
        job = {"namespace": _NAMESPACE, "name": run["flow"]}
        facets["parent"] = _facet("ParentRunFacet", run={"runId": whole}, job=job)
    said = message or (ended or {}).get("message")
    if state in ("FAIL", "ABORT") and said:
        told = {"message": hide_credentials(said), "programmingLanguage": "python"}
        facets["errorMessage"] = _facet("ErrorMessageRunFacet", **told)
    if ended is not None:
        told = {"run_id": run["run_id"], "state": ended["state"], "dropped": ended["dropped"]}
        facets["skillery_run"] = _facet("RunFacet", **told)
    kind = {"processingType": "BATCH", "integration": "SKILLERY", "jobType": "TASK" if stage else "FLOW"}
    reads, writes = _STAGES.get(stage or "", ((), ()))
    inputs = [one for name in reads for one in _read(root, name, run["specs"])]
    if ended is not None and ended["checks"]:
        inputs = [_checked(root, ended["checks"])]
    return {
        "eventTime": at,
        "eventType": state,
        "producer": _producer(),
        "schemaURL": f"{_SPEC}2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid.uuid5(uuid.UUID(whole), stage)) if stage else whole, "facets": facets},
        "job": {
            "namespace": _NAMESPACE,
            "name": f"{run['flow']}.{stage}" if stage else run["flow"],
            "facets": {"jobType": _facet("JobTypeJobFacet", **kind)},
        },
        "inputs": inputs,
        "outputs": [_written(root, name, rows.get(name), versions.get(name)) for name in writes],
    }


@functools.cache
def _producer() -> str:
    return f"urn:skillery:{metadata.version('skillery')}"


def _facet(name: str, **told: Any) -> dict[str, Any]:  # noqa: ANN401 (what the facet holds)
    version = _FACETS.get(name)
    file = f"facets/{version}/{name}" if version else "2-0-2/OpenLineage"
    return {"_producer": _producer(), "_schemaURL": f"{_SPEC}{file}.json#/$defs/{name}", **told}


def _dataset(root: Root, table: str) -> dict[str, Any]:
    """Return the namespace and the name of a table, as OpenLineage names files and objects."""
    if root.uri.startswith("s3://"):
        bucket, _, prefix = root.uri.removeprefix("s3://").partition("/")
        return {"namespace": f"s3://{bucket}", "name": f"{prefix}/{table}".strip("/")}
    return {"namespace": "file", "name": f"{root.uri}/{table}"}


def _read(root: Root, name: str, specs: Sequence[str]) -> list[dict[str, Any]]:
    if name == _SOURCES:
        named = (hide_credentials(shown_spec(spec)) for spec in specs)
        return [{"namespace": f"{_NAMESPACE}-sources", "name": name} for name in named]
    return [_dataset(root, name)]


def _checked(root: Root, checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of skills with what the gate found of it."""
    found = [
        {
            "assertion": check["check"], "success": bool(check["passed"]), "actual": str(check.get("value")),
            "expected": str(check.get("limit")),
        }
        for check in checks
    ]  # fmt: skip
    facet = _facet("DataQualityAssertionsDatasetFacet", assertions=found)
    return {**_dataset(root, "lance/skills"), "inputFacets": {"dataQualityAssertions": facet}}


def _written(root: Root, table: str, rows: int | None, version: int | None) -> dict[str, Any]:
    facets = {"schema": _facet("SchemaDatasetFacet", fields=_columns(table))}
    if version is not None:
        facets["version"] = _facet("DatasetVersionDatasetFacet", datasetVersion=str(version))
    found = {**_dataset(root, table), "facets": facets}
    if rows is not None:
        counted = _facet("OutputStatisticsOutputDatasetFacet", rowCount=rows)
        found["outputFacets"] = {"outputStatistics": counted}
    return found


@functools.cache
def _columns(table: str) -> list[dict[str, str]]:
    from flows.commands.open_formats.schema import schema_told  # noqa: PLC0415 (nobody may be told)

    columns = schema_told(table)["tables"][0]["columns"]
    return [{"name": c["column"], "type": c["type"], "description": c["meaning"]} for c in columns]
