"""The linker: asks a language model for conditions and references; what it does not answer, the rules do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from storage.root import Root
from storage.schemas import Node
from tasks.models.llm.ask import EARLY, Fallback, Llm, Slot, open_llm
from tasks.models.llm.budget import Ledger
from tasks.parse.classify.options import TypingOptions, open_classifier
from tasks.parse.classify.protocol import Classifier
from tasks.parse.edges.rules import BY_RULES, InferredPair, Pair, text_pairs
from tasks.parse.edges.windows import PROMPT, NodeWindow, values_of, windows

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
    """Asks a language model about windows of nodes, many at once.

    If an answer fails its checks, the model is asked again with the error named; then the window is halved.
    What still fails, and what the budget or the server leaves unanswered, is decided by the rules under the
    name `rules:fallback`.

    Args:
        llm: Is asked.
        candidates_only: As for `windows`.
        batch: Most nodes a question.
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
