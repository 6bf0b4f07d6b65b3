"""An LLM with fallbacks: asked until its answer is right; why there was none is counted, by prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tasks.models.llm.answer_cache import AnswerBook, run_blocking
from tasks.models.llm.asking import TRIES, ask_until_right
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.prompt import messages_of
from tasks.models.llm.question import Question, Sampling

T = TypeVar("T")
_EARLY = (": budget", ": unavailable")
_WHY = {Rejected: "malformed", BudgetSpent: "budget", LlmUnavailable: "unavailable"}


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    """The unchanging part of a question.

    Args:
        name: Has a version that is raised whenever a word of the rules, or of what is asked, changes.
        package: Has the rules in its folder `data/`.
        rules: Their file.
        schema: The form of the answer; None: text.
    """

    name: str
    package: str
    rules: str
    schema: Mapping[str, Any] | None = None


class FallbackLlm:
    """Asks an LLM on behalf of callers that can do without its answer.

    Args:
        book: Asks, and keeps the answers.
        sampling: How they are drawn.
    """

    def __init__(self, book: AnswerBook, sampling: Sampling | None = None) -> None:
        self.book, self.sampling = book, sampling or Sampling()
        self.fallbacks: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The name that is told of what the model said."""
        return f"llm:{self.book.model}"

    def ask(
        self,
        prompt: WrittenPrompt,
        record: Mapping[str, object],
        task: str,
        check: Callable[[str], T],
        *,
        doc_ids: Sequence[str] = (),
        sampling: Sampling | None = None,
    ) -> T | None:
        """Return the first answer that passes its check, of a few; None without one.

        Args:
            prompt: The rules.
            record: What the question is about, which is quoted as data.
            task: What is asked of it.
            check: Reads an answer, or raises `Rejected` with what the model is told.
            doc_ids: The documents whose text is in the record.
            sampling: How this answer is drawn; None: as all are.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """

        async def alone() -> T | None:
            async with self.book.opened():
                return await self.asked(prompt, record, task, check, doc_ids=doc_ids, sampling=sampling)

        return run_blocking(alone())

    async def asked(
        self,
        prompt: WrittenPrompt,
        record: Mapping[str, object],
        task: str,
        check: Callable[[str], T],
        *,
        doc_ids: Sequence[str] = (),
        sampling: Sampling | None = None,
        tries: int = TRIES,
    ) -> T | None:
        """Return what `ask` returns, of so many `tries`, while the book is `opened`: for many at once."""

        def question(attempt: int, complaint: str | None) -> Question:
            messages = messages_of(prompt.package, prompt.rules, record, task, complaint)
            drawn = sampling or self.sampling
            return Question(prompt.name, messages, drawn, prompt.schema, attempt, tuple(doc_ids))

        try:
            return await ask_until_right(self.book, question, lambda _: check, tries=tries)
        except (Rejected, BudgetSpent, LlmRefused, LlmUnavailable) as failure:
            self.fell_back(prompt, failure)
            return None

    def fell_back(self, prompt: WrittenPrompt, why: str | Exception, count: int = 1) -> None:
        """Count that answers to a prompt were not used, and why: in words, or what was raised."""
        said = why if isinstance(why, str) else _WHY.get(type(why), "refused")
        self.fallbacks[f"{prompt.name}: {said}"] += count

    @property
    def unfinished(self) -> bool:
        """Whether a later run may get what is missing: the ceiling or the server stood in the way."""
        return any(why.endswith(_EARLY) for why in self.fallbacks)

    def told(self) -> str:
        """Return why there was no answer, and how often; empty if there always was one."""
        return ", ".join(f"{count} x {why}" for why, count in sorted(self.fallbacks.items()))

    def report(self) -> dict[str, Any]:
        """Return the model's name, the fallbacks, and what was asked, as `Ledger.report` has it."""
        return {"model": self.book.model, "fallbacks": dict(self.fallbacks), **self.book.ledger.report()}
