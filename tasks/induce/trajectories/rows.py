"""Rows of files of trajectories, lines of JSON or of Parquet; which were not read, by reason."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from storage.errors import WrongInput
from storage.jsonl import json_value, line_text
from storage.parquet import damage
from tasks.induce.trajectories.cleaning import ELEMENT, has_element, is_web
from tasks.induce.trajectories.outline import is_cut
from tasks.induce.trajectories.record import Trajectory, trajectory_of

MOST_STEPS = 1_000
MOST_CHARACTERS = 2 * 1024 * 1024  # of an observation, and of the arguments of an action
_DEEPEST = 64  # objects and lists in one another
_MOST_DETAIL = 500  # characters


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that was not read.

    `place` is the file and the row's number in it, `trajectory_id` None where it is not known, `detail` what
    was found and what to do.
    """

    place: str
    trajectory_id: str | None
    reason: str
    detail: str


class NotRead(WrongInput):
    """A row is no trajectory; `reason` is a short stable code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def unread(place: str, row: object, error: NotRead) -> Unread:
    """Return what is kept of a row that was not read."""
    told = row.get("trajectory_id") if isinstance(row, Mapping) else None
    detail = str(error).removeprefix(f"{place}: ")
    return Unread(place, told if isinstance(told, str) else None, error.reason, detail[:_MOST_DETAIL])


def object_of(value: object) -> Mapping[str, object]:
    """Return a value that is an object and not too deep.

    Raises:
        NotRead: It is none; the reasons are `no-object` and `too-deep`.
    """
    if not isinstance(value, Mapping):
        raise NotRead("no-object", "a line holds no JSON object; write one trajectory a line")
    inside: list[Mapping[str, object] | list[object]] = [value]
    for _ in range(_DEEPEST):
        entries = (held.values() if isinstance(held, Mapping) else held for held in inside)
        inside = [each for some in entries for each in some if isinstance(each, Mapping | list)]
        if not inside:
            return value
    msg = f"more than {_DEEPEST} objects and lists stand in one another; write the inner ones as texts"
    raise NotRead("too-deep", msg)


def checked(row: Mapping[str, object]) -> Trajectory:
    """Return the trajectory of a row.

    Raises:
        NotRead: It is none; the reasons are those of `object_of`, `too-many-steps`, `wrong-field`,
            `page-too-long`, `text-too-long` and `unknown-element`.
    """
    object_of(row)
    steps = row.get("steps")
    if isinstance(steps, list) and len(steps) > MOST_STEPS:
        msg = f"it has {len(steps):,} steps, more than {MOST_STEPS:,}; split it by task"
        raise NotRead("too-many-steps", msg)
    try:
        trajectory = trajectory_of(row)
    except WrongInput as error:
        raise NotRead("wrong-field", str(error)) from error
    _check_length("page-too-long", "the final observation", trajectory.final)
    _check_length("text-too-long", "the task", trajectory.task)
    for place, step in enumerate(trajectory.steps):
        _check_length("page-too-long", f"the observation of step {place}", step.observation)
        args = json.dumps(step.action.args, ensure_ascii=False)
        _check_length("text-too-long", f"args of step {place}", args)
    _check_elements(trajectory)
    return trajectory


def _check_length(reason: str, name: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        msg = (
            f"{name}: {len(text):,} characters, more than {MOST_CHARACTERS:,}; shorten it, and mark where a "
            "page was cut by a line `...`"
        )
        raise NotRead(reason, msg)


def _check_elements(trajectory: Trajectory) -> None:
    """Raise `NotRead` if an action is on an element that its page does not have, unless an error says so.

    Where a page was cut the element may have stood behind the cut.
    """
    if not is_web(trajectory):
        return
    for place, step in enumerate(trajectory.steps):
        failed = ELEMENT not in step.action.args or step.error is not None
        if not (failed or has_element(step) or is_cut(step.observation)):
            msg = (
                f"step {place} acts on element {str(step.action.args[ELEMENT])[:40]!r}, which is not on its "
                "page; give the page that the agent saw, or the error that the action had"
            )
            raise NotRead("unknown-element", msg)


FORM = "{trajectory_id, task_id, domain, task, success, steps}"
MOST_LINE = 64 * 1024 * 1024  # bytes; a longer line is not held in memory
_GZIP = b"\x1f\x8b"
_DAMAGE = (OSError, EOFError, zlib.error)  # what reading a damaged or cut archive raises
_CHUNK = 1 << 16
_File = io.BufferedReader | gzip.GzipFile


def read_values(path: Path) -> Iterator[tuple[str, object | Unread]]:
    """Yield the value of each line of a file in order, with `path:line`; blank lines are skipped.

    A line that cannot be read comes as `Unread`; the reasons are `broken-line` (no JSON, or no UTF-8),
    `line-too-long` and `broken-file` (from there on the file is damaged).

    Raises:
        WrongInput: The file is missing or empty, or is no text.
    """
    with _opened(path) as file:
        is_empty = True
        for number, line in enumerate(_lines(file), start=1):
            place = f"{path}:{number}"
            try:
                if isinstance(line, NotRead):
                    raise line
                if not (text := line_text(line, place, is_first=number == 1)):
                    continue
                value: object = json_value(text, place, FORM)
            except WrongInput as error:
                told = error if isinstance(error, NotRead) else NotRead("broken-line", str(error))
                value = unread(place, None, told)
            is_empty = False
            yield place, value
    if is_empty:
        raise WrongInput(f"{path}: is empty; give a file of trajectories, one a line")


@contextmanager
def _opened(path: Path) -> Iterator[_File]:
    """Open a file, gzipped or not, that begins as a text."""
    with ExitStack() as files:
        try:
            file: _File = files.enter_context(path.open("rb"))
            if file.peek(len(_GZIP)).startswith(_GZIP):
                # Closing an archive leaves the file that it was given open.
                file = files.enter_context(gzip.GzipFile(fileobj=file))
            head = file.peek(_CHUNK)
        except _DAMAGE as error:
            msg = f"{path}: cannot be read ({error}); give a file of JSON lines, plain or gzipped"
            raise WrongInput(msg) from error
        if b"\0" in head:
            raise WrongInput(f"{path}: is no text; give JSON lines in UTF-8, plain or gzipped, or Parquet")
        yield file


def _lines(file: _File) -> Iterator[bytes | NotRead]:
    """Yield the lines of a file; in place of one that is too long or damaged, what is wrong with it."""
    try:
        while line := file.readline(MOST_LINE + 1):
            if len(line) <= MOST_LINE:
                yield line
                continue
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
            msg = f"more than {MOST_LINE // 1024**2} MiB in one line; write one trajectory a line"
            yield NotRead("line-too-long", msg)
    except _DAMAGE as error:
        msg = f"the file is damaged from here on ({error}); write it again"
        yield NotRead("broken-file", msg)


MAGIC = b"PAR1"  # the first bytes of a Parquet file
_BATCH = 16  # rows in memory at once: a row may hold long pages


def read_rows(path: Path) -> Iterator[tuple[str, object | Unread]]:
    """Yield the row of each trajectory of a file in order, with `path:row`, counted from 1.

    The arguments of an action may be a struct, a JSON text or a list of keys and values. In a struct a field
    that is null is one that the step does not have; a null that is meant can be given as JSON text.
    A row that cannot be read comes as `Unread`; the reasons are `broken-arguments` and `broken-file`.

    Raises:
        WrongInput: The file is missing, is no Parquet, or has no rows.
    """
    with closing(_parquet(path)) as file:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    place = f"{path}:{number}"
                    yield place, _row_or_unread(place, row)
        except damage() as error:
            place = f"{path}:{number + 1}"
            msg = f"the file is damaged from here on ({error}); write it again"
            yield place, unread(place, None, NotRead("broken-file", msg))


def _parquet(path: Path) -> Any:  # noqa: ANN401
    # Arrow rather than Polars reads: flipped bits in a page abort Polars' process.
    try:
        file = pq.ParquetFile(path)
    except damage() as error:
        msg = f"{path}: cannot be read as Parquet ({error}); give a Parquet file of trajectories, one a row"
        raise WrongInput(msg) from error
    if file.metadata.num_rows == 0:
        file.close()
        raise WrongInput(f"{path}: is empty; give a Parquet file of trajectories, one a row")
    return file


def _row_or_unread(place: str, held: Mapping[str, Any]) -> object | Unread:
    try:
        row: dict[str, object] = _plain({**held, "steps": None})
        if isinstance(steps := held.get("steps"), list):
            row["steps"] = [_step(step, place) for step in steps]
    except NotRead as error:
        return unread(place, held, error)
    return row


def _step(held: object, place: str) -> object:
    action = held.get("action") if isinstance(held, Mapping) else None
    if not isinstance(held, Mapping) or not isinstance(action, Mapping):
        return _plain(held)
    args = _arguments(action.get("args"), place)
    return {**_plain({**held, "action": None}), "action": {**_plain({**action, "args": None}), "args": args}}


def _arguments(held: object, place: str) -> dict[str, Any]:
    """Return the arguments of an action; those of a struct that are null belong to other steps."""
    if held is None:
        return {}
    if isinstance(held, Mapping):
        return dict(_plain(held))
    if isinstance(held, list):
        return dict(_pair(each) for each in held)
    try:
        found = json_value(str(held), place, "of arguments")
    except WrongInput as error:
        raise NotRead("broken-arguments", str(error)) from error
    if isinstance(found, dict):
        return found
    raise NotRead("broken-arguments", f"args must be an object of arguments by name, not {str(found)[:60]!r}")


def _pair(held: object) -> tuple[str, Any]:
    """Return a key and its value out of a list: a map of Arrow gives tuples, a list of structs objects."""
    pair = tuple(held.values()) if isinstance(held, Mapping) else held
    if isinstance(held, Mapping) and {"key", "value"} <= held.keys():
        pair = (held["key"], held["value"])
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        msg = "args must be a struct, a JSON text, or a list of {key, value} with texts as keys"
        raise NotRead("broken-arguments", msg)
    return pair[0], _plain(pair[1])


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON holds it, without fields that are null; dates and bytes become texts."""
    if isinstance(value, Mapping):
        held = {str(name): _plain(each) for name, each in value.items()}
        return {name: each for name, each in held.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
