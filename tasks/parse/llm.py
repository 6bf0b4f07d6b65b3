"""Types fragments by a language model, in batches; what it cannot type, the local classifier does."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.errors import WrongInput
from tasks.models.llm_answers import AnswerBook, run_blocking
from tasks.models.llm_errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm_question import Sampling
from tasks.parse.classify import Classifier, FragmentInContext, Typed
from tasks.parse.prompt import PROMPT, checked_labels, question_for
from tasks.parse.quote import addresses_the_reader

BATCH = 20
"""Fragments a question, as in SkillPager, section 4.4."""
ACCURACY = 0.79
"""How often SkillPager's LLM agreed with people on a node's type: section 5.1.1."""

_ORDINAL = re.compile(r"#\d+$")
_UNAVAILABLE = {BudgetSpent: "budget", LlmUnavailable: "unavailable"}


class TypedBy(NamedTuple):
    """A fragment's type and the name of the classifier that gave it."""

    typed: Typed
    classifier: str


@dataclass(frozen=True, slots=True)
class Typing:
    """What became of fragments, in order.

    Args:
        rows: One a fragment.
        asked: Fragments that the language model was to type.
        fallbacks: Of these, how many it did not, by reason: `rejected` (no answer for it alone passed the
            checks), `refused` (too long, or refused by the server, even alone), `budget`, `unavailable`.
        unfinished: Documents with fragments that a later run would ask about: `budget` and `unavailable`.
    """

    rows: list[TypedBy]
    asked: int
    fallbacks: Counter[str]
    unfinished: frozenset[str]

    @property
    def partial(self) -> bool:
        """Whether the ceiling, or a server that did not answer, ended the asking early."""
        return bool(self.fallbacks["budget"] or self.fallbacks["unavailable"])


class LlmClassifier:
    """Asks a language model for the types of SkillPager, section 3.1, 20 fragments of a document at a time.

    An answer that fails its checks is asked for again with the error named, then the batch is halved, down to
    one fragment; what still fails, and all that the budget or the server leaves unanswered, is typed locally,
    under the name `<local name>:fallback`. A fragment that seems to address the model is asked about by
    itself. The confidence of each of the model's labels is `accuracy`: what a model says of its own certainty
    is not calibrated, and the rate at which it agrees with people is the one figure that is.

    Args:
        book: Asks, and keeps the answers.
        local: Types what the model does not.
        sampling: How answers are drawn.
        batch: Most fragments a question, at least 1.
        tries: Requests for one batch before it is halved, at least 1.
        accuracy: In (0, 1): the model's accuracy; the default is SkillPager's, measure yours.

    Raises:
        WrongInput: A number is out of its range.
    """

    def __init__(
        self,
        book: AnswerBook,
        local: Classifier,
        *,
        sampling: Sampling | None = None,
        batch: int = BATCH,
        tries: int = 2,
        accuracy: float = ACCURACY,
    ) -> None:
        if min(batch, tries) < 1 or not 0 < accuracy < 1:
            msg = f"batch {batch}, tries {tries}, accuracy {accuracy}: at least 1, at least 1, in (0, 1)"
            raise WrongInput(msg)
        self.book, self.local = book, local
        self._sampling, self._batch, self._tries, self._accuracy = (
            sampling or Sampling(),
            batch,
            tries,
            accuracy,
        )

    @property
    def name(self) -> str:
        """The identity under which the model's labels are recorded: prompt version and model."""
        return f"{PROMPT}@{self.book.model}"

    def classify(self, fragments: Sequence[FragmentInContext]) -> list[Typed]:
        """Return one answer a fragment, in order; `type_all` also says who gave it."""
        return [row.typed for row in self.type_all(fragments).rows]

    def type_all(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Sequence[str | None] | None = None,
        report: Callable[[int, int], None] | None = None,
    ) -> Typing:
        """Type fragments of any number of documents, many batches at once; call it for many documents.

        Args:
            fragments: Those of one document stand together, in document order.
            documents: The document of each; None: what stands before `#` and a number in its id, if any.
            report: Told of fragments done and in all.

        Raises:
            LlmDenied: The server lets nobody in, or has no such model.
        """
        return run_blocking(self.type_all_async(fragments, documents, report))

    async def type_all_async(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Sequence[str | None] | None = None,
        report: Callable[[int, int], None] | None = None,
    ) -> Typing:
        """Do what `type_all` does, for asynchronous code."""
        names = [document_of(f) for f in fragments] if documents is None else list(documents)
        labels: dict[int, str] = {}
        failed: dict[int, str] = {}

        async def work(places: list[int]) -> None:
            batch = [fragments[k] for k in places]
            doc_ids = tuple(sorted({d for k in places if (d := names[k]) is not None}))
            for place, (label, reason) in zip(places, await self._label(batch, doc_ids), strict=True):
                if label is None:
                    failed[place] = reason
                else:
                    labels[place] = label
            if report is not None:
                report(len(labels) + len(failed), len(fragments))

        async with self.book.opened():
            await _together(work(places) for places in batches(fragments, names, self._batch))
        return self._typing(fragments, names, labels, failed)

    def _typing(
        self,
        fragments: Sequence[FragmentInContext],
        names: Sequence[str | None],
        labels: dict[int, str],
        failed: dict[int, str],
    ) -> Typing:
        places = sorted(failed)
        by_rule = dict(zip(places, self.local.classify([fragments[k] for k in places]), strict=True))
        fallback = f"{self.local.name}:fallback"
        rows = [
            TypedBy(by_rule[k], fallback)
            if k in failed
            else TypedBy(Typed(labels[k], self._accuracy), self.name)
            for k in range(len(fragments))
        ]
        late = {names[k] for k, reason in failed.items() if reason in _UNAVAILABLE.values()}
        unfinished = frozenset(name for name in late if name is not None)
        return Typing(rows, len(fragments), Counter(failed.values()), unfinished)

    async def _label(
        self, batch: Sequence[FragmentInContext], doc_ids: tuple[str, ...]
    ) -> list[tuple[str | None, str]]:
        """Return `(label, "")` a fragment, or `(None, reason)` where there is none."""
        reason = "rejected"
        complaint: str | None = None
        for _ in range(self._tries):
            question = question_for(batch, sampling=self._sampling, complaint=complaint, doc_ids=doc_ids)
            try:
                return [(label, "") for label in await self.book.ask(question, checked_labels(len(batch)))]
            except Rejected as rejection:
                complaint = rejection.reason
                if rejection.final:
                    break
            except LlmRefused:
                reason = "refused"
                break
            except (BudgetSpent, LlmUnavailable) as error:
                return [(None, _UNAVAILABLE[type(error)])] * len(batch)
        if len(batch) == 1:
            return [(None, reason)]
        middle = (len(batch) + 1) // 2
        halves = (self._label(half, doc_ids) for half in (batch[:middle], batch[middle:]))
        first, second = await asyncio.gather(*halves)
        return [*first, *second]


def batches(
    fragments: Sequence[FragmentInContext], documents: Sequence[str | None], most: int
) -> list[list[int]]:
    """Return the positions of fragments in batches: of one document each, at most `most`, in order.

    A fragment that seems to address the model is a batch of its own, so that it stands in no question about
    another.
    """
    found: list[list[int]] = []
    open_batch: dict[str | None, list[int]] = {}
    for place, (fragment, document) in enumerate(zip(fragments, documents, strict=True)):
        if addresses_the_reader(fragment.text):
            found.append([place])
            continue
        current = open_batch.get(document)
        if current is None or len(current) == most:
            current = open_batch[document] = []
            found.append(current)
        current.append(place)
    return found


def document_of(fragment: FragmentInContext) -> str | None:
    """Return the document that a node's id names; None for an id of another kind."""
    name = _ORDINAL.sub("", fragment.fragment_id)
    return None if name == fragment.fragment_id else name


async def _together(jobs: Iterable[Coroutine[None, None, None]]) -> None:
    """Await all; the first error ends the others, and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
