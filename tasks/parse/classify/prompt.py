"""The prompt that asks an LLM for the types of fragments, and the check of its answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from storage.schemas import NODE_TYPES
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import data_block, quoted, shortened, shown
from tasks.parse.classify.protocol import FragmentInContext

PROMPT = "classify-1"

"""Raised whenever a word of what is sent changes, in `data/classify_prompt.txt` or here."""

_TEXT, _NEIGHBOUR, _TITLE, _TITLES = 1_600, 240, 100, 6  # characters; titles of the heading path


def question_for(
    fragments: Sequence[FragmentInContext],
    *,
    sampling: Sampling,
    complaint: str | None = None,
    doc_ids: Sequence[str] = (),
) -> Question:
    """Return the question for the types of a batch of fragments in document order, ids `1` to their number.

    Neither the fragments' own ids nor their document's are sent, so that equal batches share an answer.
    `complaint` is what was wrong with the answer before, `doc_ids` the documents of the fragments.
    """
    lines = [quoted(record) for record in _records(fragments)]
    n = len(lines)
    ids = 'the id "1"' if n == 1 else f'the {n} ids "1" to "{n}"'
    parts = [data_block(lines), f"Give the kind of {ids}: one of {', '.join(NODE_TYPES)} each."]
    if complaint is not None:
        parts.append(f"An earlier answer could not be used. What was wrong: {quoted({'error': complaint})}")
    messages = (("system", _rules()), ("user", "\n\n".join(parts)))
    return Question(PROMPT, messages, sampling, _schema(n), doc_ids=tuple(doc_ids))


def checked_labels(n: int) -> Callable[[str], list[str]]:
    """Return the check of an answer for `n` fragments, which gives their types in order.

    Raises:
        Rejected: By the check: the answer has no JSON object, ids are missing, unknown or double, or a label
            is not one of the six.
    """

    def check(text: str) -> list[str]:
        labels = _by_id(find_json(text))
        wanted = [str(k) for k in range(1, n + 1)]
        _require_ids(labels, wanted)
        for name in wanted:
            if labels[name] not in NODE_TYPES:
                reason = f"the kind of id {name} is {labels[name][:40]!r}, not one of {', '.join(NODE_TYPES)}"
                raise Rejected(reason)
        return [labels[name] for name in wanted]

    return check


def _records(fragments: Sequence[FragmentInContext]) -> list[dict[str, object]]:
    texts = [None, *(f.text for f in fragments), None]
    records: list[dict[str, object]] = []
    for position, fragment in enumerate(fragments, start=1):
        record: dict[str, object] = {"id": str(position)}
        if fragment.heading_path:
            record["headings"] = [shown(t, _TITLE, "start") for t in fragment.heading_path[-_TITLES:]]
        record["block"] = fragment.block
        # A neighbour that is itself in the batch is not sent twice.
        if fragment.previous and fragment.previous != texts[position - 1]:
            record["before"] = shown(fragment.previous, _NEIGHBOUR, "end")
        record["text"] = shortened(fragment.text, _TEXT)
        if fragment.next and fragment.next != texts[position + 1]:
            record["after"] = shown(fragment.next, _NEIGHBOUR, "start")
        records.append(record)
    return records


@functools.cache
def _rules() -> str:
    return (
        resources.files("tasks.parse")
        .joinpath("data/classify_prompt.txt")
        .read_text(encoding="utf-8")
        .strip()
    )


def _schema(n: int) -> dict[str, Any]:
    ids = [str(k) for k in range(1, n + 1)]
    kind = {"type": "string", "enum": list(NODE_TYPES)}
    return {
        "type": "object",
        "properties": dict.fromkeys(ids, kind),
        "required": ids,
        "additionalProperties": False,
    }


def _by_id(value: object) -> dict[str, str]:
    """Return `{id: label}` of an object, bare or as the one value of another, or of a list of id and kind."""
    if (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(inner := next(iter(value.values())), dict | list)
    ):
        value = inner
    pairs = list(value.items()) if isinstance(value, dict) else _listed(value)
    labels: dict[str, str] = {}
    for name, label in pairs:
        if not isinstance(label, str):
            reason = f"the kind of id {str(name)[:40]!r} is no text"
            raise Rejected(reason)
        if str(name) in labels:
            reason = f"id {str(name)[:40]!r} occurs more than once"
            raise Rejected(reason)
        labels[str(name)] = label.strip().casefold().replace(" ", "_").replace("-", "_")
    return labels


def _listed(value: object) -> list[tuple[object, object]]:
    pairs = []
    for entry in value if isinstance(value, list) else []:
        fields = list(entry.values()) if isinstance(entry, dict) and "id" in entry else []
        if len(fields) != 2:
            reason = "the answer is a list instead of an object with the ids as keys"
            raise Rejected(reason)
        name = entry["id"]
        pairs.append((name, next((v for k, v in entry.items() if k != "id"), None)))
    return pairs


def _require_ids(labels: dict[str, str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in labels]
    unknown = [name for name in labels if name not in wanted]
    if missing or unknown:
        said = [f"{len(labels)} ids instead of {len(wanted)}"]
        said += [f"missing are {', '.join(missing[:20])}"] if missing else []
        said += [f"not asked for are {', '.join(name[:20] for name in unknown[:5])}"] if unknown else []
        raise Rejected("; ".join(said))
