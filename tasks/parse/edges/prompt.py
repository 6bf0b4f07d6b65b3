"""The prompt that asks an LLM which nodes condition or mention another, and the check of its answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from storage.schemas import Node
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import data_block, quoted, shortened, shown
from tasks.parse.edges.rules import Pair
from tasks.parse.edges.windows import NodeWindow

PROMPT = "edges-1"

"""Raised whenever a word of what is sent changes, in `data/edges_prompt.txt` or here."""

KINDS = ("condition", "reference")
_TEXT, _TITLE, _TITLES = 800, 100, 6  # characters; titles of the heading path
_MOST = 8  # pairs a node begins, of one kind: what mentions more is a table of contents


def question_for(
    nodes: Sequence[Node], window: NodeWindow, *, sampling: Sampling, complaint: str | None, doc_id: str
) -> Question:
    """Return the question about a window of one document's nodes, which get the ids `1` to their number.

    `complaint` is what was wrong with the answer before.
    """
    ids = {place: str(k) for k, place in enumerate(window.places, start=1)}
    lines = [quoted(_record(ids[place], nodes[place])) for place in window.places]
    parts = [data_block(lines), f"The pieces have the ids 1 to {len(ids)}."]
    if window.asked is not None:
        asked = {kind: [[ids[a], ids[b]] for a, b, k in sorted(window.asked) if k == kind] for kind in KINDS}
        parts.append(f"Keep those of these pairs that hold, and name no others: {quoted(asked)}")
    if complaint is not None:
        parts.append(f"An earlier answer could not be used. What was wrong: {quoted({'error': complaint})}")
    messages = (("system", _rules()), ("user", "\n\n".join(parts)))
    return Question(PROMPT, messages, sampling, _schema(list(ids.values())), doc_ids=(doc_id,))


def checked_pairs(window: NodeWindow) -> Callable[[str], list[Pair]]:
    """Return the check of an answer about a window, which gives its pairs, each once, in order.

    Raises:
        Rejected: By the check: the answer has no such JSON object, a pair is none of two ids, joins a piece
            to itself or was not asked about, or one piece begins more than 8 of a kind.
    """
    places = {str(k): place for k, place in enumerate(window.places, start=1)}

    def check(text: str) -> list[Pair]:
        answer = find_json(text)
        if not isinstance(answer, dict) or not set(KINDS) <= set(answer):
            reason = "the answer is no JSON object with the keys condition and reference"
            raise Rejected(reason)
        found = {pair for kind in KINDS for pair in _pairs(answer[kind], kind, places)}
        for pair in found:
            if not window.holds(pair):
                reason = f"a {pair[2]} was named that was not asked about"
                raise Rejected(reason)
        for begins in {(a, kind) for a, _, kind in found}:
            if window.asked is None and sum((a, kind) == begins for a, _, kind in found) > _MOST:
                reason = f"one piece begins more than {_MOST} pairs of {begins[1]}"
                raise Rejected(reason)
        return sorted(found)

    return check


def _pairs(value: object, kind: str, places: dict[str, int]) -> list[Pair]:
    pairs = []
    for entry in value if isinstance(value, list) else [value]:
        ends = [str(end) for end in entry] if isinstance(entry, list) else []
        if len(ends) != 2 or not set(ends) <= set(places) or ends[0] == ends[1]:
            reason = f"{kind} holds {str(entry)[:40]!r}, which is no pair of two different ids"
            raise Rejected(reason)
        pairs.append((places[ends[0]], places[ends[1]], kind))
    return pairs


def _record(name: str, node: Node) -> dict[str, object]:
    record: dict[str, object] = {"id": name, "kind": node.node_type}
    if node.heading_path:
        record["headings"] = [shown(title, _TITLE, "start") for title in node.heading_path[-_TITLES:]]
    return {**record, "text": shortened(node.text, _TEXT)}


@functools.cache
def _rules() -> str:
    return (
        resources.files("tasks.parse").joinpath("data/edges_prompt.txt").read_text(encoding="utf-8").strip()
    )


def _schema(ids: Sequence[str]) -> dict[str, Any]:
    pair = {"type": "array", "items": {"type": "string", "enum": list(ids)}, "minItems": 2, "maxItems": 2}
    return {
        "type": "object",
        "properties": {kind: {"type": "array", "items": pair} for kind in KINDS},
        "required": list(KINDS),
        "additionalProperties": False,
    }
