"""Fallbacks of callers that still check answers by functions; `ask.Llm` takes their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.ask import TRIES, Llm, failure_of
from tasks.models.llm.errors import BudgetSpent, LlmRefused, LlmUnavailable, Rejected
from tasks.models.llm.prompt import messages_of
from tasks.models.llm.question import Question, Sampling

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    """The unchanging part of a question."""

    name: str
    package: str
    rules: str
    schema: Mapping[str, Any] | None = None


class FallbackLlm(Llm):
    """Asks an LLM on behalf of callers that can do without its answer."""

    @property
    def book(self) -> AnswerCache:
        """Asks, and keeps the answers."""
        return self.cache

    def ask_checked(
        self,
        prompt: WrittenPrompt,
        record: Mapping[str, object],
        task: str,
        check: Callable[[str], T],
        *,
        doc_ids: Sequence[str] = (),
        sampling: Sampling | None = None,
    ) -> T | None:
        """Return the first answer that passes its check, of a few; None without one."""
        return self.gather([self.asked(prompt, record, task, check, doc_ids=doc_ids, sampling=sampling)])[0]

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
        """Return what `ask_checked` returns, of so many `tries`, while the book is `opened`."""

        def question(attempt: int, complaint: str | None) -> Question:
            messages = messages_of(prompt.package, prompt.rules, record, task, complaint)
            drawn = sampling or self.sampling
            return Question(prompt.name, messages, drawn, prompt.schema, attempt, tuple(doc_ids))

        complaint: str | None = None
        for attempt in range(tries):
            try:
                return await self.book.ask(question(attempt, complaint), check)
            except Rejected as rejection:
                complaint = rejection.reason
                if rejection.final or attempt == tries - 1:
                    self.fell_back_by(prompt, rejection)
                    return None
            except (BudgetSpent, LlmRefused, LlmUnavailable) as failure:
                self.fell_back_by(prompt, failure)
                return None
        return None

    def fell_back_by(self, prompt: WrittenPrompt, why: str | Exception, count: int = 1) -> None:
        """Count that answers to a prompt were not used, and why: in words, or what was raised."""
        self.fell_back(prompt, why if isinstance(why, str) else failure_of(why), count)
