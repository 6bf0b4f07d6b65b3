"""What every classifier of fragments takes and returns, and the JSON lines of the command `classify`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from storage.errors import WrongInput


@dataclass(frozen=True, slots=True)
class FragmentInContext:
    """A piece of a document with what stands around it; no heading path means above the first heading."""

    fragment_id: str
    heading_path: tuple[str, ...]
    block: str
    previous: str | None
    text: str
    next: str | None


class Typed(NamedTuple):
    """A fragment's type, one of `storage.schemas.NODE_TYPES`, and how sure the classifier is, in (0, 1)."""

    node_type: str
    confidence: float


class Classifier(Protocol):
    """Types fragments as in SkillPager, section 3.1; `name` is stored with each row, hence versioned."""

    @property
    def name(self) -> str:
        """The identity under which this classifier's answers are recorded, such as `rules-1`."""

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order."""


def read_fragments(path: Path) -> Iterator[FragmentInContext]:
    """Yield the fragments of a file of JSON lines, in order; blank lines are passed over.

    Args:
        path: Lines `{id, heading_path, block, previous, text, next}`; `previous` and `next` may be
            null or missing, other keys are ignored.

    Raises:
        WrongInput: The file cannot be read, or a line is no such object; names file and line.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _fragment(line, f"{path}, line {number}")
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); give a file of JSON lines, one fragment each"
        raise WrongInput(msg) from error


def write_typed(path: Path, rows: Iterable[tuple[str, Typed]]) -> None:
    """Write `{id, node_type, confidence}` a line for each `(id, Typed)`, in order, all or nothing.

    Args:
        path: The file to write or replace; its folder must exist.
        rows: May be lazy; when it raises, `path` stays as it was.

    Raises:
        WrongInput: The file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _writable(path, unfinished).open("w", encoding="utf-8") as out:
            for fragment_id, (node_type, confidence) in rows:
                record = {"id": fragment_id, "node_type": node_type, "confidence": round(confidence, 4)}
                out.write(json.dumps(record) + "\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _writable(path: Path, unfinished: Path) -> Path:
    """Return `unfinished` as an empty file, once it is sure that it can become `path`."""
    try:
        unfinished.touch()
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror}); give a file in a folder that you may write to"
        raise WrongInput(msg) from error
    if path.is_dir():
        msg = f"{path}: is a folder; give a file to write the types to"
        raise WrongInput(msg)
    return unfinished


def _fragment(line: bytes, where: str) -> FragmentInContext:
    try:
        record = json.loads(line)
    except ValueError as error:
        msg = f"{where}: not JSON ({error}); write one object a line"
        raise WrongInput(msg) from error
    if problem := _problem(record):
        msg = f"{where}: {problem}"
        raise WrongInput(msg)
    return FragmentInContext(
        fragment_id=record["id"],
        heading_path=tuple(record["heading_path"]),
        block=record["block"],
        previous=record.get("previous"),
        text=record["text"],
        next=record.get("next"),
    )


def _problem(record: object) -> str | None:
    """Say what keeps a decoded line from being a fragment, or None."""
    if not isinstance(record, dict):
        return "not an object; write {id, heading_path, block, previous, text, next}"
    for key in ("id", "block", "text"):
        if not isinstance(record.get(key), str):
            return f"`{key}` is missing or no text"
    for key in ("previous", "next"):
        if not isinstance(record.get(key), str | None):
            return f"`{key}` is neither text nor null"
    path = record.get("heading_path")
    if not isinstance(path, list) or not all(isinstance(title, str) for title in path):
        return "`heading_path` is no list of texts"
    return None
