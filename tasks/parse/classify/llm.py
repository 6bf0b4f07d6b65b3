"""The LLM classifier of fragments, in batches; what it cannot type, the local classifier types."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence

from storage.errors import WrongInput
from tasks.models.llm.answer_cache import AnswerBook, run_blocking
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.question import Sampling
from tasks.models.llm.quoting import addresses_the_reader
from tasks.parse.classify.attribution import (
    EARLY,
    AttributedClassifier,
    Documents,
    Report,
    TypedBy,
    Typing,
    document_of,
)
from tasks.parse.classify.prompt import PROMPT, checked_labels, question_for
from tasks.parse.classify.protocol import Classifier, FragmentInContext, Typed

BATCH = 20

"""Fragments a question, as in SkillPager, section 4.4."""

ACCURACY = 0.79

"""How often SkillPager's LLM agreed with people on a node's type: section 5.1.1."""

_UNAVAILABLE = {BudgetSpent: "budget", LlmUnavailable: "unavailable"}


class LlmClassifier(AttributedClassifier):
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
        return llm_name(self.book.model)

    def type_all(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Documents | None = None,
        report: Report | None = None,
    ) -> Typing:
        """Type fragments as every attributed classifier does, in an event loop of its own."""
        return run_blocking(self.type_all_async(fragments, documents, report))

    async def type_all_async(
        self,
        fragments: Sequence[FragmentInContext],
        documents: Documents | None = None,
        report: Report | None = None,
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
        names: Documents,
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
        late = {names[k] for k, reason in failed.items() if reason in EARLY}
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


def llm_name(model: str) -> str:
    """Return the name of a model's classifier: prompt version and model."""
    return f"{PROMPT}@{model}"


def batches(fragments: Sequence[FragmentInContext], documents: Documents, most: int) -> list[list[int]]:
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


async def _together(jobs: Iterable[Coroutine[None, None, None]]) -> None:
    """Await all; the first error ends the others, and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
