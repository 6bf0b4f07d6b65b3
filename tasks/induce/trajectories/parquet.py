"""Parquet files of trajectories: the same fields as in lines, with arguments in one of three forms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from storage.errors import WrongInput
from storage.jsonl import json_value
from storage.parquet import damage
from tasks.induce.trajectories.unread import NotRead, Unread, unread

MAGIC = b"PAR1"  # the first bytes of a Parquet file
_BATCH = 16  # rows in memory at once: a row may hold long pages
_PAIR = 2


def read_rows(path: Path) -> Iterator[tuple[str, object | Unread]]:
    """Yield the row of each trajectory of a file in order, with `path:row`, counted from 1.

    The arguments of an action may be a struct, a JSON text or a list of keys and values. In a struct a field
    that is null is one that the step does not have; a null that is meant can be given as JSON text.
    A row that cannot be read comes as `Unread`; the reasons are `broken-arguments` and `broken-file`.

    Raises:
        WrongInput: The file is missing, is no Parquet, or has no rows.
    """
    with closing(_opened(path)) as file:
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


def _opened(path: Path) -> Any:  # noqa: ANN401
    # Arrow rather than Polars reads: flipped bits in a page abort Polars' process.
    try:
        file = pq.ParquetFile(path)
    except damage() as error:
        msg = f"{path}: cannot be read as Parquet ({error}); give a Parquet file of trajectories, one a row"
        raise WrongInput(msg) from error
    if file.metadata.num_rows == 0:
        file.close()
        msg = f"{path}: is empty; give a Parquet file of trajectories, one a row"
        raise WrongInput(msg)
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
    msg = f"args must be an object of arguments by name, not {str(found)[:60]!r}"
    raise NotRead("broken-arguments", msg)


def _pair(held: object) -> tuple[str, Any]:
    """Return a key and its value out of a list: a map of Arrow gives tuples, a list of structs objects."""
    pair = tuple(held.values()) if isinstance(held, Mapping) else held
    if isinstance(held, Mapping) and {"key", "value"} <= held.keys():
        pair = (held["key"], held["value"])
    if not isinstance(pair, tuple) or len(pair) != _PAIR or not isinstance(pair[0], str):
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
