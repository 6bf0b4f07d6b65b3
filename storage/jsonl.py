"""Files of JSON lines (jsonl) that a user gives and gets: one object a line, errors by file and line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage.errors import WrongInput

_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Legal inside JSON strings, but many a reader ends a line at them.
_ESCAPES = str.maketrans({"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def read_lines(path: Path, form: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of a UTF-8 file of JSON lines in order, with `path:line`, which names it in errors.

    Lines end at line feeds only; a byte order mark and blank lines are skipped. A file that cannot be read,
    or a line that is no JSON object of valid text, is WrongInput, which shows the `form` wanted: `{doc_id}`.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{path}:{number}"
                text = line_text(line, where, is_first=number == 1)
                record = json_value(text, where, form) if text else {}
                if not isinstance(record, dict):
                    raise WrongInput(f"{where}: no object; write {form}")
                if text:
                    yield where, record
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); give a file of JSON lines {form}"
        raise WrongInput(msg) from error


def text_field(record: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text under a key of the object at `where`; raise `WrongInput` if there is none."""
    value = record.get(key)
    if not isinstance(value, str):
        raise WrongInput(f"{where}: `{key}` is missing or no text")
    return value


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one object in each line, in order, all or nothing, to a file in a folder that is there.

    `records` may be lazy: the first is asked for when it is sure that `path` can be written (or WrongInput).
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}") if path.name else path
    with _writing(path):
        _require_file(path)
        out = unfinished.open("w", encoding="utf-8", newline="\n")
    try:
        try:
            for record in records:
                line = json.dumps(record, ensure_ascii=False).translate(_ESCAPES)
                with _writing(path):
                    out.write(line + "\n")
        finally:
            with _writing(path):  # what a full disk did not take is tried once more
                out.close()
        with _writing(path):
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror}); give a file in a folder that you may write to"
        raise WrongInput(msg) from error


def _require_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        msg = f"{path}: is a {'folder' if path.is_dir() else 'device or pipe'}; give a file to write to"
        raise WrongInput(msg)


def line_text(line: bytes, where: str, *, is_first: bool) -> str:
    """Return the text of a UTF-8 line (else `WrongInput`) without blanks; the first may have a BOM."""
    try:
        return line.decode("utf-8-sig" if is_first else "utf-8").strip(" \t\r\n")
    except UnicodeDecodeError as error:
        msg = f"{where}: not UTF-8 (byte {error.start + 1} of the line); save the file as UTF-8"
        raise WrongInput(msg) from error


def json_value(text: str, where: str, form: str) -> Any:  # noqa: ANN401
    """Return the value of a text of JSON (else `WrongInput`); `form` is the value wanted, for errors."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        # Only an escape can have smuggled one in.
        is_torn = "\\u" in text and _SURROGATE.search(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise WrongInput(f"{where}: not JSON ({reason}); write one object {form} a line") from error
    if is_torn:
        raise WrongInput(f"{where}: half a surrogate pair is no text; mend the \\u escapes")
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
