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
    """A piece of a document with the texts around it; no heading path means above the first heading."""

    fragment_id: str
    heading_path: tuple[str, ...]
    block: str
    previous: str | None
    text: str
    next: str | None


Fragments = Sequence[FragmentInContext]


class Typed(NamedTuple):
    """A fragment's type, one of `storage.schemas.NODE_TYPES`, and the classifier's confidence, in (0, 1)."""

    node_type: str
    confidence: float


class Classifier(Protocol):
    """Types fragments as in SkillPager, section 3.1."""

    @property
    def name(self) -> str:
        """The name stored with each row, such as `rules-1`; it changes whenever answers do."""

    def classify(self, fragments: Fragments) -> list[Typed]:
        """Return one answer a fragment, in order."""


def read_fragments(path: Path) -> Iterator[FragmentInContext]:
    """Yield the fragments of a file of JSON lines `{id, heading_path, block, previous, text, next}`.

    `previous` and `next` may be null or missing, other keys are ignored.

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
    """Write a line `{id, node_type, confidence, classifier}` for each row, in order, all or none.

    `rows` have id, type, and the classifier's name; if they are lazy and raise, `path` stays as it was. A
    file that cannot be written raises `WrongInput`.
    """
    lines = (
        {"id": fragment_id, "node_type": node_type, "confidence": round(confidence, 4), "classifier": name}
        for fragment_id, (node_type, confidence), name in rows
    )
    write_lines(path, lines)


def _neighbour(record: dict[str, Any], key: str, where: str) -> str | None:
    value = record.get(key)
    if not isinstance(value, str | None):
        raise WrongInput(f"{where}: `{key}` is neither text nor null")
    return value


def _titles(record: dict[str, Any], where: str) -> tuple[str, ...]:
    path = record.get("heading_path")
    if not isinstance(path, list) or not all(isinstance(title, str) for title in path):
        raise WrongInput(f"{where}: `heading_path` is no list of texts")
    return tuple(path)
