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
from typing import Any, TextIO

_FORMAT = "SKILLERY_LOG_FORMAT"
_FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # what a process of a worker is there for
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

    It ends in the last digits of the flow run's own id, so that the first line of the log has it.
    """
    flow_run = os.environ.get(_FLOW_RUN, "").replace("-", "")
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{flow_run[-6:]}" if flow_run else None


def is_json() -> bool:
    """Tell whether the log is to be JSON."""
    return os.environ.get(_FORMAT, "").lower() == "json"


def set_up_log(*, quiet: bool) -> None:
    """Let this process, and all that it starts, log as the settings say.

    Args:
        quiet: Whether stderr shows warnings and errors alone, also of the workers of a cluster.
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
        fields = dict(_fields(record))
        if record.exc_info:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC)
        return json_line(record.levelname, record.getMessage(), at, logger=record.name, **fields)


def json_line(level: str, message: str, at: datetime | None = None, **fields: object) -> str:
    """Return a line: `time`, `level`, `run`, `flow`, `stage`, `source`, `message` and, in `fields`, the rest.

    Args:
        level: Its name.
        message: What happened.
        at: When; None: now.
        fields: More about it; `source` is the spec of the source that it is about.
    """
    told = {
        "time": (at or datetime.now(UTC)).isoformat(timespec="milliseconds"),
        "level": level.lower(),
        "run": DOING.run or run_of_process(),
        "flow": DOING.flow or fields.get("flow_name"),
        "stage": DOING.stage,
        "source": fields.pop("source", None),
        "message": message,
        "fields": fields,
    }
    return json.dumps(told, ensure_ascii=False, default=str)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    for name, value in vars(record).items():
        if name not in _OF_EVERY_RECORD and value not in (None, "", "<unknown>"):
            yield name, value
