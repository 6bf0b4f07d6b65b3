"""The protocol of classifiers of fragments, and the JSON lines of the command `classify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from storage.errors import WrongInput
from storage.jsonl import read_lines, text_field, write_lines


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
    """Yield the fragments of a file of JSON lines, in order.

    Args:
        path: Lines `{id, heading_path, block, previous, text, next}`; `previous` and `next` may be
            null or missing, other keys are ignored.

    Raises:
        WrongInput: The file cannot be read, or a line is no such object; names file and line.
    """
    for where, record in read_lines(path, "{id, heading_path, block, previous, text, next}"):
        yield FragmentInContext(
            fragment_id=text_field(record, "id", where),
            heading_path=_titles(record, where),
            block=text_field(record, "block", where),
            previous=_neighbour(record, "previous", where),
            text=text_field(record, "text", where),
            next=_neighbour(record, "next", where),
        )


def write_typed(path: Path, rows: Iterable[tuple[str, Typed, str]]) -> None:
    """Write `{id, node_type, confidence, classifier}` a line for each row, in order, all or nothing.

    Args:
        path: The file to write or replace; its folder must exist.
        rows: Id, type, and the name of the classifier that gave it; may be lazy: when it raises, `path` stays
            as it was.

    Raises:
        WrongInput: The file cannot be written.
    """
    write_lines(
        path,
        (
            {
                "id": fragment_id,
                "node_type": node_type,
                "confidence": round(confidence, 4),
                "classifier": classifier,
            }
            for fragment_id, (node_type, confidence), classifier in rows
        ),
    )


def _neighbour(record: dict[str, Any], key: str, where: str) -> str | None:
    value = record.get(key)
    if not isinstance(value, str | None):
        msg = f"{where}: `{key}` is neither text nor null"
        raise WrongInput(msg)
    return value


def _titles(record: dict[str, Any], where: str) -> tuple[str, ...]:
    path = record.get("heading_path")
    if not isinstance(path, list) or not all(isinstance(title, str) for title in path):
        msg = f"{where}: `heading_path` is no list of texts"
        raise WrongInput(msg)
    return tuple(path)
