"""The linker: asks a language model for conditions and references; what it does not answer, the rules do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from storage.answers import Answers
from storage.root import Root
from storage.schemas import Node
from tasks.models.llm.answer_cache import AnswerBook, open_book, run_blocking
from tasks.models.llm.asking import ask_until_right, together
from tasks.models.llm.budget import Ledger
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.question import Question, Sampling
from tasks.parse.classify.attribution import EARLY
from tasks.parse.classify.options import LlmOptions, Slot, open_classifier
from tasks.parse.classify.protocol import Classifier
from tasks.parse.edges.prompt import PROMPT, checked_pairs, question_for
from tasks.parse.edges.rules import BY_RULES, InferredPair, Pair, text_pairs
from tasks.parse.edges.windows import NodeWindow, windows

BY_RULES_INSTEAD = f"{BY_RULES}:fallback"
# Begin the keys of `Linked.counts`.
ASKED, FALLBACKS = "edges asked", "edge fallbacks: "
_TRIES = 2


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """How a language model infers edges; small, and fit to be sent to another process."""

    kind: Literal["llm", "hybrid"]  # whether it reads all nodes, or candidate pairs alone
    llm: LlmOptions  # how it is asked; `threshold` and `accuracy` play no part

    def shared_by(self, batches: int) -> EdgeOptions:
        """Return what `LlmOptions.shared_by` does, of these options."""
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
        book: Asks, and keeps the answers.
        candidates_only: As for `windows`.
        sampling: How answers are drawn.
        batch: Most nodes a question.
    """

    def __init__(self, book: AnswerBook, *, candidates_only: bool, sampling: Sampling, batch: int) -> None:
        self._book, self._candidates_only = book, candidates_only
        self._sampling, self._batch = sampling, max(batch, 2)

    @property
    def name(self) -> str:
        """The name stored with the edges that the model names: prompt version and model."""
        return f"{PROMPT}@{self._book.model}"

    def link(self, documents: Mapping[str, Sequence[Node]]) -> Linked:
        """Return the conditions and references between the nodes of each document.

        Raises:
            LlmDenied: The server rejects the key, or has no such model.
        """
        return run_blocking(self._link(documents))

    async def _link(self, documents: Mapping[str, Sequence[Node]]) -> Linked:
        found: dict[str, list[tuple[NodeWindow, list[Pair] | str]]] = {doc_id: [] for doc_id in documents}

        async def work(doc_id: str, window: NodeWindow) -> None:
            found[doc_id] += await self._decided(documents[doc_id], doc_id, window)

        sent = {
            doc_id: windows(nodes, self._batch, candidates_only=self._candidates_only)
            for doc_id, nodes in documents.items()
        }
        todo = [(doc_id, window) for doc_id, asked in sent.items() for window in asked]
        if todo:
            async with self._book.opened():
                await together(work(*each) for each in todo)
        failed = [(d, said) for d, decided in found.items() for _, said in decided if isinstance(said, str)]
        return Linked(
            {doc_id: self._pairs(nodes, found[doc_id], sent[doc_id]) for doc_id, nodes in documents.items()},
            len(todo),
            Counter(reason for _, reason in failed),
            frozenset(doc_id for doc_id, reason in failed if reason in EARLY),
        )

    async def _decided(
        self, nodes: Sequence[Node], doc_id: str, window: NodeWindow
    ) -> list[tuple[NodeWindow, list[Pair] | str]]:
        """Return the pairs of a window, or why there are none; of its parts where it had to be halved."""

        def question(_: int, complaint: str | None) -> Question:
            return question_for(nodes, window, sampling=self._sampling, complaint=complaint, doc_id=doc_id)

        try:
            check = checked_pairs(window)
            return [(window, await ask_until_right(self._book, question, lambda _: check, tries=_TRIES))]
        except Rejected:
            reason = "rejected"
        except LlmRefused:
            reason = "refused"
        except BudgetSpent:
            return [(window, "budget")]
        except LlmUnavailable:
            return [(window, "unavailable")]
        halves = window.halves()
        if not halves:
            return [(window, reason)]
        parts = await asyncio.gather(*(self._decided(nodes, doc_id, half) for half in halves))
        return [decided for part in parts for decided in part]

    def _pairs(
        self,
        nodes: Sequence[Node],
        decided: Sequence[tuple[NodeWindow, list[Pair] | str]],
        sent: Sequence[NodeWindow],
    ) -> list[InferredPair]:
        """Return what the model named, and of the rules' pairs those on which it did not decide."""
        answers = [(window, said) for window, said in decided if not isinstance(said, str)]
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
    return f" edges {edges.kind} {PROMPT}@{llm.endpoint.model} {shaping!r}"


def edges_report(edges: EdgeOptions, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return what a run asked about edges: `inferred_by`, `asked` (windows), `fallbacks`, `partial`.

    `fallbacks` are windows left to the rules, by reason; `partial` is as in `llm_report`.
    """
    fallbacks = {k.removeprefix(FALLBACKS): n for k, n in sorted(counts.items()) if k.startswith(FALLBACKS)}
    return {
        "inferred_by": f"{edges.kind}:{PROMPT}@{edges.llm.endpoint.model}",
        "asked": counts.get(ASKED, 0),
        "fallbacks": fallbacks,
        "partial": any(fallbacks.get(reason) for reason in EARLY),
    }


@contextmanager
def open_asked(
    root: Root,
    local: Classifier,
    llm: LlmOptions | None,
    edges: EdgeOptions | None,
    ledger: Ledger,
    slot: Slot = nullcontext,
) -> Iterator[tuple[Classifier, Linker | None]]:
    """Hold the classifier, and the linker or None, of one account; arguments as `open_classifier`.

    Without a linker the rules alone infer edges. The answers of both are kept below the root.
    """
    with open_classifier(root, local, llm, ledger=ledger, slot=slot) as opened:
        if edges is None:
            yield opened.classifier, None
            return
        with Answers(root) as answers:
            book = open_book(edges.llm.endpoint, answers, ledger, slot=slot)
            only = edges.kind == "hybrid"
            linker = Linker(book, candidates_only=only, sampling=edges.llm.sampling, batch=edges.llm.batch)
            yield opened.classifier, linker
