"""The log as JSON: one object a line on stderr, for what collects the logs of many machines.

`SKILLERY_LOG_FORMAT=json` asks for it. Commands load this module, and whatever process Prefect starts.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

_FORMAT = "SKILLERY_LOG_FORMAT"
_FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # what a process of a worker is there for
_RUN = "SKILLERY_RUN_ID"  # chosen by the first process of that run, for those that it starts
# What every record has; whatever else one holds goes to `fields`.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(slots=True)
class Doing:
    """What this process does now, for the lines of its log."""

    run: str | None = None
    flow: str | None = None
    stage: str | None = None


DOING = Doing()


@functools.cache
def run_of_process() -> str | None:
    """Return the id of the run that a worker of Prefect started this process for; None: nobody did.

    It ends in the last digits of the flow run's own id, so that the first line of the log has it. The
    processes that this one starts have the same.
    """
    flow_run = os.environ.get(_FLOW_RUN, "").replace("-", "")
    if not flow_run:
        return None
    if not os.environ.get(_RUN, "").endswith(flow_run[-6:]):
        os.environ[_RUN] = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{flow_run[-6:]}"
    return os.environ[_RUN]


def is_json() -> bool:
    """Tell whether the log is to be JSON."""
    return os.environ.get(_FORMAT, "").lower() == "json"


def set_up_log(*, quiet: bool) -> None:
    """Let this process, and all that it starts, log as the settings say.

    If `quiet`, stderr shows warnings and errors alone, also of the workers of a cluster.
    """
    # By these names of settings Prefect makes its handler, in each process of its own.
    if quiet:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")
    if is_json():
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_CLASS", f"{__name__}.JsonLines")
        logging.basicConfig(level=logging.WARNING, handlers=[JsonLines()])
        logging.captureWarnings(True)


class JsonLines(logging.StreamHandler[TextIO]):
    """Writes each record as one JSON object; takes the arguments of Prefect's own handler."""

    def __init__(
        self, stream: TextIO | None = None, styles: Mapping[str, str] | None = None, level: int | str = 0
    ) -> None:
        del styles  # JSON has no colours
        super().__init__(stream or sys.stderr)
        self.setLevel(level)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = {"logger": record.name, **dict(_fields(record))}
        if record.exc_info:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC)
        return json_line(record.levelname, record.getMessage(), at, fields)


def json_line(
    level: str, message: str, at: datetime | None = None, fields: Mapping[str, object] = MappingProxyType({})
) -> str:
    """Return a line: `time`, `level`, `run`, `flow`, `stage`, `source`, `message` and, in `fields`, the rest.

    `at` None is now; among the fields, `source` is the spec of the source that it is about.
    """
    source = fields.get("source")
    told = {
        "time": (at or datetime.now(UTC)).isoformat(timespec="milliseconds"),
        "level": level.lower(),
        "run": DOING.run or run_of_process(),
        "flow": DOING.flow or fields.get("flow_name"),
        "stage": DOING.stage,
        "source": None if source is None else str(source),
        "message": message,
        "fields": {name: value for name, value in fields.items() if name != "source"},
    }
    try:
        return json.dumps(told, ensure_ascii=False, allow_nan=False, default=str)
    except (TypeError, ValueError, RecursionError):  # what JSON cannot hold is no reason to lose the line
        told["fields"] = {name: repr(value) for name, value in fields.items()}
        return json.dumps(told, ensure_ascii=False, default=str)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    for name, value in vars(record).items():
        unsaid = value is None or (isinstance(value, str) and value in ("", "<unknown>"))
        if name not in _OF_EVERY_RECORD and not unsaid:
            yield name, value
