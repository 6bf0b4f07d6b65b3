"""Lines of JSON, plain or gzipped: one value a line; a line that is none is told with its number."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from storage.errors import WrongInput
from storage.jsonl import json_value, line_text
from tasks.induce.trajectories.unread import NotRead, Unread, unread

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
                text = _text(line, place, is_first=number == 1)
                if not text:
                    continue
                value: object = json_value(text, place, FORM)
            except NotRead as error:
                value = unread(place, None, error)
            except WrongInput as error:
                value = unread(place, None, NotRead("broken-line", str(error)))
            is_empty = False
            yield place, value
    if is_empty:
        msg = f"{path}: is empty; give a file of trajectories, one a line"
        raise WrongInput(msg)


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
            msg = f"{path}: is no text; give JSON lines in UTF-8, plain or gzipped, or Parquet"
            raise WrongInput(msg)
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


def _text(line: bytes | NotRead, place: str, *, is_first: bool) -> str:
    if isinstance(line, NotRead):
        raise line
    return line_text(line, place, is_first=is_first)
