"""The LLM classifier of fragments, in batches; what it cannot type, the local classifier types."""

from __future__ import annotations

import asyncio
from collections import Counter

from storage.errors import WrongInput
from tasks.models.llm.answer_cache import AnswerBook, run_blocking
from tasks.models.llm.asking import ask_until_right, together
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import addresses_the_reader
from tasks.parse.classify.attribution import EARLY, AttributedClassifier, Documents, Report, TypedBy, Typing
from tasks.parse.classify.prompt import PROMPT, checked_labels, question_for
from tasks.parse.classify.protocol import Classifier, Fragments, Typed

# Fragments a question: SkillPager, section 4.4.
BATCH = 20
# How often SkillPager's LLM agreed with people on a node's type: section 5.1.1.
ACCURACY = 0.79
# A label and "", or no label and the reason.
_Outcome = tuple[str | None, str]


class LlmClassifier(AttributedClassifier):
    """Asks a language model for the types of SkillPager, section 3.1, by batches of one document's fragments.

    If an answer fails its checks, the model is asked again with the error named; then the batch is halved,
    down to one fragment. What still fails, and what the budget or the server leaves unanswered, is typed
    locally under the name `<local name>:fallback`.

    Args:
        book: Asks, and keeps the answers.
        local: Types what the model does not.
        sampling: How answers are drawn.
        batch: Most fragments a question, at least 1.
        tries: Requests for one batch before it is halved, at least 1.
        accuracy: The model's accuracy, in (0, 1), which is the confidence of its labels; the default is that
            of SkillPager's model.

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
        self._sampling, self._batch, self._tries = sampling or Sampling(), batch, tries
        # What a model says of its own certainty is not calibrated.
        self._accuracy = accuracy

    @property
    def name(self) -> str:
        """The name stored with the model's labels: prompt version and model."""
        return llm_name(self.book.model)

    def _type(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing:
        return run_blocking(self._ask(fragments, documents, report))

    async def _ask(self, fragments: Fragments, documents: Documents, report: Report | None) -> Typing:
        outcomes: dict[int, _Outcome] = {}

        async def work(places: list[int]) -> None:
            batch = [fragments[k] for k in places]
            doc_ids = tuple(sorted({d for k in places if (d := documents[k]) is not None}))
            outcomes.update(zip(places, await self._label(batch, doc_ids), strict=True))
            if report is not None:
                report(len(outcomes), len(fragments))

        async with self.book.opened():
            await together(work(places) for places in batches(fragments, documents, self._batch))
        failed = {k: outcomes[k][1] for k in range(len(fragments)) if outcomes[k][0] is None}
        late = {documents[k] for k, reason in failed.items() if reason in EARLY}
        unfinished = frozenset(name for name in late if name is not None)
        rows = self._rows(fragments, [outcomes[k][0] for k in range(len(fragments))])
        return Typing(rows, len(fragments), Counter(failed.values()), unfinished)

    def _rows(self, fragments: Fragments, labels: list[str | None]) -> list[TypedBy]:
        """Return the rows of the model's labels; fragments without a label are typed locally."""
        left = [fragment for fragment, label in zip(fragments, labels, strict=True) if label is None]
        typed = iter(self.local.classify(left))
        fallback = f"{self.local.name}:fallback"
        return [
            TypedBy(next(typed), fallback)
            if label is None
            else TypedBy(Typed(label, self._accuracy), self.name)
            for label in labels
        ]

    async def _label(self, batch: Fragments, doc_ids: tuple[str, ...]) -> list[_Outcome]:
        def question(_: int, complaint: str | None) -> Question:
            return question_for(batch, sampling=self._sampling, complaint=complaint, doc_ids=doc_ids)

        try:
            check = checked_labels(len(batch))
            labels = await ask_until_right(self.book, question, lambda _: check, tries=self._tries)
            return [(label, "") for label in labels]
        except Rejected:
            reason = "rejected"
        except LlmRefused:
            reason = "refused"
        except BudgetSpent:
            return [(None, "budget")] * len(batch)
        except LlmUnavailable:
            return [(None, "unavailable")] * len(batch)
        if len(batch) == 1:
            return [(None, reason)]
        middle = (len(batch) + 1) // 2
        halves = (self._label(half, doc_ids) for half in (batch[:middle], batch[middle:]))
        first, second = await asyncio.gather(*halves)
        return [*first, *second]


def llm_name(model: str) -> str:
    """Return the name of a model's classifier: prompt version and model."""
    return f"{PROMPT}@{model}"


def batches(fragments: Fragments, documents: Documents, most: int) -> list[list[int]]:
    """Return the places of fragments in batches: of one document each, at most `most`, in order."""
    found: list[list[int]] = []
    open_batch: dict[str | None, list[int]] = {}
    for place, (fragment, document) in enumerate(zip(fragments, documents, strict=True)):
        # A fragment that gives the model orders must stand in no question about another.
        if addresses_the_reader(fragment.text):
            found.append([place])
            continue
        current = open_batch.get(document)
        if current is None or len(current) == most:
            current = open_batch[document] = []
            found.append(current)
        current.append(place)
    return found
