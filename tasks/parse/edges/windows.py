"""Windows: the nodes of one document that one question about edges shows, and its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from storage.schemas import Node
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values, known_of
from tasks.models.llm.quoting import addresses_the_reader, quoted, shortened, shown
from tasks.parse.edges.rules import FARTHEST_STEP, Pair, find_references, text_pairs

# Nodes that two neighbouring windows share, so that what stands on either side of a cut is seen together.
SHARED = 4
# Steps after a precondition that it may constrain.
_STEPS = 3
KINDS = ("condition", "reference")
_TEXT, _TITLE, _TITLES = 800, 100, 6  # characters; titles of the heading path
_MOST = 8  # pairs a node begins, of one kind: what mentions more is a table of contents


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """The places of nodes shown, in order, and the pairs asked about; None: whatever holds between them."""

    places: tuple[int, ...]
    asked: frozenset[Pair] | None

    def holds(self, pair: Pair) -> bool:
        """Tell whether an answer about this window decides on a pair."""
        if self.asked is not None:
            return pair in self.asked
        return pair[0] in self.places and pair[1] in self.places

    def halves(self) -> list[NodeWindow]:
        """Return two windows of half the pairs or half the nodes; none if it cannot be cut."""
        if self.asked is not None:
            pairs = sorted(self.asked)
            cut = [pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]] if len(pairs) > 1 else []
            return [_of_pairs(part) for part in cut]
        middle = (len(self.places) + 1) // 2
        if len(self.places) <= 2:
            return []
        return [NodeWindow(self.places[:middle], None), NodeWindow(self.places[middle - 1 :], None)]


def windows(nodes: Sequence[Node], most: int, *, candidates_only: bool) -> list[NodeWindow]:
    """Return the windows of a document's nodes, of at most `most` nodes each, at least 2.

    Args:
        nodes: All nodes of one document, in order.
        most: Nodes that one question shows.
        candidates_only: Whether only `candidate_pairs` are asked about. Else neighbouring nodes are shown
            `most` at a time, and candidates that lie farther apart by themselves.
    """
    # A text that gives the reader orders stands in no question: its edges are those of the rules.
    shown = [k for k, node in enumerate(nodes) if not addresses_the_reader(node.text)]
    visible = set(shown)
    pairs = [pair for pair in candidate_pairs(nodes) if {pair[0], pair[1]} <= visible]
    if candidates_only:
        return list(_grouped(pairs, most))
    step = max(1, most - SHARED)
    starts = range(0, max(len(shown) - SHARED, 1), step)
    found = [NodeWindow(tuple(shown[start : start + most]), None) for start in starts if len(shown) > 1]
    far = [pair for pair in pairs if not any(window.holds(pair) for window in found)]
    return [*found, *_grouped(far, most)]


def candidate_pairs(nodes: Sequence[Node]) -> list[Pair]:
    """Return the pairs that may be a condition or a reference: those of the rules, and what they pass over.

    These are a precondition without a cue, with each of the next three steps at most 12 nodes on; and a
    mention by a name that many documents use for something else.
    """
    steps = [k for k, node in enumerate(nodes) if node.node_type == "step"]
    pairs = set(text_pairs(nodes))
    pairs |= {(i, j, "reference") for i, j in find_references(nodes, common=frozenset())}
    for k, node in enumerate(nodes):
        if node.node_type == "precondition":
            after = [step for step in steps if 0 < step - k <= FARTHEST_STEP][:_STEPS]
            pairs |= {(k, step, "condition") for step in after}
    return sorted(pairs)


def _grouped(pairs: Sequence[Pair], most: int) -> Iterator[NodeWindow]:
    """Yield windows that ask about all pairs, by place, each showing at most `most` nodes."""
    held: list[Pair] = []
    places: set[int] = set()
    for pair in pairs:
        if held and len(places | {pair[0], pair[1]}) > most:
            yield _of_pairs(held)
            held, places = [], set()
        held.append(pair)
        places |= {pair[0], pair[1]}
    if held:
        yield _of_pairs(held)


def _of_pairs(pairs: Sequence[Pair]) -> NodeWindow:
    return NodeWindow(tuple(sorted({k for pair in pairs for k in pair[:2]})), frozenset(pairs))


def _checked_pairs(answer: object, info: ValidationInfo) -> list[Pair]:
    """Return the pairs of an answer about a window, which is known, each once, in order.

    Raises:
        Rejected: A pair is none of two ids, joins a piece to itself or was not asked about, or one piece
            begins more than 8 of a kind.
    """
    window: NodeWindow = known_of(info)
    places = {str(k): place for k, place in enumerate(window.places, start=1)}
    if not isinstance(answer, dict) or not set(KINDS) <= set(answer):
        raise Rejected("the answer is no JSON object with the keys condition and reference")
    found = {pair for kind in KINDS for pair in _pairs(answer[kind], kind, places)}
    for pair in found:
        if not window.holds(pair):
            raise Rejected(f"a {pair[2]} was named that was not asked about")
    for begins in {(a, kind) for a, _, kind in found}:
        if window.asked is None and sum((a, kind) == begins for a, _, kind in found) > _MOST:
            raise Rejected(f"one piece begins more than {_MOST} pairs of {begins[1]}")
    return sorted(found)


PROMPT: Prompt[list[Pair]] = Prompt(
    "edges-1", "tasks.parse/edges_prompt.txt", Annotated[list[Pair], BeforeValidator(_checked_pairs)]
)


def values_of(nodes: Sequence[Node], window: NodeWindow, doc_id: str) -> Values:
    """Return what is asked about a window of one document's nodes, which get the ids `1` to their number."""
    ids = {place: str(k) for k, place in enumerate(window.places, start=1)}
    task = f"The pieces have the ids 1 to {len(ids)}."
    if window.asked is not None:
        asked = {kind: [[ids[a], ids[b]] for a, b, k in sorted(window.asked) if k == kind] for kind in KINDS}
        task += f"\n\nKeep those of these pairs that hold, and name no others: {quoted(asked)}"
    records = [_record(ids[place], nodes[place]) for place in window.places]
    return Values(task, records, (doc_id,), known=window, schema=_schema(list(ids.values())), attempt=0)


def _pairs(value: object, kind: str, places: dict[str, int]) -> list[Pair]:
    pairs = []
    for entry in value if isinstance(value, list) else [value]:
        ends = [str(end) for end in entry] if isinstance(entry, list) else []
        if len(ends) != 2 or not set(ends) <= set(places) or ends[0] == ends[1]:
            raise Rejected(f"{kind} holds {str(entry)[:40]!r}, which is no pair of two different ids")
        pairs.append((places[ends[0]], places[ends[1]], kind))
    return pairs


def _record(name: str, node: Node) -> dict[str, object]:
    record: dict[str, object] = {"id": name, "kind": node.node_type}
    if node.heading_path:
        record["headings"] = [shown(title, _TITLE, "start") for title in node.heading_path[-_TITLES:]]
    return {**record, "text": shortened(node.text, _TEXT)}


def _schema(ids: Sequence[str]) -> dict[str, Any]:
    pair = {"type": "array", "items": {"type": "string", "enum": list(ids)}, "minItems": 2, "maxItems": 2}
    return {
        "type": "object",
        "properties": {kind: {"type": "array", "items": pair} for kind in KINDS},
        "required": list(KINDS),
        "additionalProperties": False,
    }
