"""The linker: asks a language model about windows of nodes; what it does not answer, the rules do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationInfo

from storage.root import Root
from storage.schemas import Node
from tasks.models.llm.ask import EARLY, Fallback, Llm, Slot, open_llm
from tasks.models.llm.budget import Ledger
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Prompt, Values, known_of
from tasks.models.llm.quoting import addresses_the_reader, quoted, shortened, shown
from tasks.parse.classify.options import TypingOptions, open_classifier
from tasks.parse.classify.protocol import Classifier
from tasks.parse.edges.rules import BY_RULES, FARTHEST_STEP, InferredPair, Pair, find_references, text_pairs

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

    With `candidates_only` only `candidate_pairs` are asked about. Else neighbouring nodes are shown `most` at
    a time, and candidates that lie farther apart by themselves.
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
    """Return the pairs of an answer about a window, which is known, each once, in order."""
    window: NodeWindow = known_of(info)
    places = {str(k): place for k, place in enumerate(window.places, start=1)}
    if not isinstance(answer, dict) or not set(KINDS) <= set(answer):
        raise Rejected("the answer is no JSON object with the keys condition and reference")
    found = {pair for kind in KINDS for pair in _named_pairs(answer[kind], kind, places)}
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


def _named_pairs(value: object, kind: str, places: dict[str, int]) -> list[Pair]:
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


BY_RULES_INSTEAD = f"{BY_RULES}:fallback"
# Begin the keys of `Linked.counts`.
ASKED, FALLBACKS = "edges asked", "edge fallbacks: "
_TRIES = 2
_Decided = tuple[NodeWindow, list[Pair] | Fallback]


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """How a language model infers edges; small, and fit to be sent to another process."""

    kind: Literal["llm", "hybrid"]  # whether it reads all nodes, or candidate pairs alone
    llm: TypingOptions  # how it is asked; `threshold` and `accuracy` play no part

    def shared_by(self, batches: int) -> EdgeOptions:
        """Return what `TypingOptions.shared_by` does, of these options."""
        return replace(self, llm=self.llm.shared_by(batches))


@dataclass(frozen=True, slots=True)
class Linked:
    """The conditions and references of documents, and how they were found."""

    pairs: dict[str, list[InferredPair]] = field(default_factory=dict)
    asked: int = 0  # windows
    fallbacks: Counter[str] = field(default_factory=Counter)  # windows left to the rules, by reason
    unfinished: frozenset[str] = frozenset()  # documents about which a later run asks again

    def counts(self) -> Counter[str]:
        """Return `edges asked` and `edge fallbacks: <reason>`, both windows, without those that are 0."""
        return +Counter(
            {ASKED: self.asked, **{FALLBACKS + reason: n for reason, n in self.fallbacks.items()}}
        )


class Linker:
    """Asks a language model about windows of nodes, of at most `batch` nodes, many at once.

    If an answer fails its checks, the model is asked again with the error named; then the window is halved.
    What still fails, and what the budget or the server leaves unanswered, is decided by the rules under the
    name `rules:fallback`.
    """

    def __init__(self, llm: Llm, *, candidates_only: bool, batch: int) -> None:
        self._llm, self._candidates_only, self._batch = llm, candidates_only, max(batch, 2)

    @property
    def name(self) -> str:
        """The name stored with the edges that the model names: prompt version and model."""
        return f"{PROMPT.name}@{self._llm.model}"

    def link(self, documents: Mapping[str, Sequence[Node]]) -> Linked:
        """Return the conditions and references between the nodes of each document.

        Raises:
            LlmDenied: The server rejects the key, or has no such model.
        """
        found: dict[str, list[_Decided]] = {doc_id: [] for doc_id in documents}

        async def work(doc_id: str, window: NodeWindow) -> None:
            said: list[_Decided] = await self._llm.answer_parts(
                PROMPT, window, lambda part: values_of(documents[doc_id], part, doc_id),
                lambda part, _: part.halves(), tries=_TRIES,
            )  # fmt: skip
            found[doc_id] += said

        sent = {
            doc_id: windows(nodes, self._batch, candidates_only=self._candidates_only)
            for doc_id, nodes in documents.items()
        }
        todo = [(doc_id, window) for doc_id, asked in sent.items() for window in asked]
        self._llm.gather(work(*each) for each in todo)
        answers = [(doc_id, said) for doc_id, decided in found.items() for _, said in decided]
        failed = [(doc_id, said) for doc_id, said in answers if isinstance(said, Fallback)]
        return Linked(
            {doc_id: self._pairs(nodes, found[doc_id], sent[doc_id]) for doc_id, nodes in documents.items()},
            len(todo),
            Counter(said.reason for _, said in failed),
            frozenset(doc_id for doc_id, said in failed if said.early),
        )

    def _pairs(
        self, nodes: Sequence[Node], decided: Sequence[_Decided], sent: Sequence[NodeWindow],
    ) -> list[InferredPair]:  # fmt: skip
        """Return what the model named, and of the rules' pairs those on which it did not decide."""
        answers = [(window, said) for window, said in decided if not isinstance(said, Fallback)]
        found = {pair: self.name for _, said in answers for pair in said}
        for pair in text_pairs(nodes):
            if not any(window.holds(pair) for window, _ in answers):
                instead = any(window.holds(pair) for window in sent)
                found.setdefault(pair, BY_RULES_INSTEAD if instead else BY_RULES)
        return [(*pair, by) for pair, by in sorted(found.items())]


def edges_identity(edges: EdgeOptions | None) -> str:
    """Return all that edges depend on beside the nodes; "" for those of the rules."""
    if edges is None:
        return ""
    llm = edges.llm
    shaping = (sorted(asdict(llm.sampling).items()), llm.batch)
    return f" edges {edges.kind} {PROMPT.name}@{llm.endpoint.model} {shaping!r}"


def edges_report(edges: EdgeOptions, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return what a run asked about edges: `inferred_by`, `asked` (windows), `fallbacks`, `partial`.

    `fallbacks` are windows left to the rules, by reason; `partial` is as in `llm_report`.
    """
    fallbacks = {k.removeprefix(FALLBACKS): n for k, n in sorted(counts.items()) if k.startswith(FALLBACKS)}
    return {
        "inferred_by": f"{edges.kind}:{PROMPT.name}@{edges.llm.endpoint.model}",
        "asked": counts.get(ASKED, 0),
        "fallbacks": fallbacks,
        "partial": any(fallbacks.get(reason) for reason in EARLY),
    }


@contextmanager
def open_asked(
    root: Root, local: Classifier, llm: TypingOptions | None, edges: EdgeOptions | None, ledger: Ledger,
    slot: Slot = nullcontext,
) -> Iterator[tuple[Classifier, Linker | None]]:  # fmt: skip
    """Hold the classifier, and the linker or None, of one account; arguments as `open_classifier`.

    Without a linker the rules alone infer edges. The answers of both are kept below the root.
    """
    with open_classifier(root, local, llm, ledger=ledger, slot=slot) as (classifier, _):
        if edges is None:
            yield classifier, None
            return
        with open_llm(root, edges.llm, ledger=ledger, slot=slot) as asked:
            linker = Linker(asked, candidates_only=edges.kind == "hybrid", batch=edges.llm.batch)
            yield classifier, linker
