"""The page of a run in Prefect: the name it stands under, and the lines that it shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coolname.data import config
from prefect.context import FlowRunContext
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger

from flows.run_record import RunRecord, recorded
from storage.root import Root
from tasks.models.visible import visible

# Prefect names a run that nobody named by two of these words.
_LISTS: dict[str, Any] = config  # of a package that comes with Prefect
_WORDS = frozenset(word for part in _LISTS.values() for word in part.get("words", ()))


def named(template: str) -> Callable[[], str]:
    """Return what names a flow's runs: a name given in Prefect's form stays, else the template is filled in.

    Args:
        template: Holds parameters of the flow in braces.
    """

    def name() -> str:
        context = FlowRunContext.get()
        run = None if context is None else context.flow_run
        if context is None or run is None:
            return template
        return template.format(**context.parameters or {}) if is_generated(run.name) else run.name

    return name


def is_generated(name: str) -> bool:
    """Tell whether a run's name is one of Prefect's own, such as `amber-badger`."""
    words = name.split("-")
    return len(words) == 2 and _WORDS.issuperset(words)


def tell(line: str) -> None:
    """Put a line on the page of the run, and into its log; a line end in it cannot forge another."""
    try:
        logger: Any = get_run_logger()
    except MissingContextError:  # without Prefect's decorators a flow is a function like any other
        logger = logging.getLogger(__name__)
    logger.info("%s", visible(line))


@contextmanager
def recorded_on_page(root: Root, run_id: str, specs: list[str], *, flow: str) -> Iterator[RunRecord]:
    """Write a run's record as `recorded` does, and tell it on the run's page, also if the run fails."""
    record = None
    try:
        with recorded(root, run_id, specs, flow=flow) as record:
            yield record
    finally:
        if record is not None:
            _tell_record(record.as_dict())


def _tell_record(record: Mapping[str, Any]) -> None:
    """Tell what a run read, dropped, made, checked and published, from its record."""
    for source in record["sources"]:
        tell_source(source)
    tell(f"documents {record['documents']}, dropped: {counts(record['dropped'])}")
    tell(f"nodes {record['nodes']}, edges {record['edges']}, vectors made {record['vectors_new']}")
    passed = sum(check["passed"] for check in record["checks"])
    tell(f"checks passed: {passed} of {len(record['checks'])}")
    for check in record["checks"]:
        if not check["passed"]:
            tell(f"check {check['check']} failed: {check['value']}, limit {check['limit']}")
    what = "published" if record["published"] else "nothing was published; still served"
    tell(f"{what}: {record['served'] or 'nothing'}")
    message = f": {record['message']}" if record["message"] else ""
    tell(f"run {record['run_id']} is {record['state']}{message}; seconds: {counts(record['seconds'])}")


def counts(found: Mapping[str, Any]) -> str:
    """Return counts on one line, `none` where there are none."""
    return ", ".join(f"{name} {n}" for name, n in found.items()) or "none"


def tell_source(report: Mapping[str, Any]) -> None:
    """Tell what the reading of one source brought."""
    read = {k: report[k] for k in ("listed", "new", "changed", "unchanged", "retired")}
    failed = f"; failed: {counts(report['failed'])}" if report["failed"] else ""
    message = f"; {report['message']}" if report["message"] else ""
    tell(f"source {report['source']}: {report['state']}; {counts(read)}{failed}{message}")
