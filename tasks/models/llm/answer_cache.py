"""The cache of checked answers: only questions without a kept answer are asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from storage.answers import Answers, KeptAnswer
from tasks.models.llm.budget import Ledger, guessed_tokens
from tasks.models.llm.chat_completion import Dialect, Reply
from tasks.models.llm.client import Endpoint, LlmClient
from tasks.models.llm.errors import CUT, FILTERED, TOO_LONG, ContextOverflow, Rejected
from tasks.models.llm.question import Question

T = TypeVar("T")
_ENDS = {"length": CUT, "content_filter": FILTERED}
_DIALECT = "dialect"


class AnswerCache:
    """An LLM that is asked each question once, whatever is killed in between.

    An answer is kept as soon as it is there. If it passed its check, it is the answer from then on; if it
    failed, it is never used, but the same question is not paid for again: the caller goes on to its next
    attempt. A question without an answer leaves nothing behind.
    """

    def __init__(self, client: LlmClient, answers: Answers) -> None:
        self.client, self.answers = client, answers
        self.model, self.ledger = client.endpoint.model, client.ledger
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Of the answers that this object gave, be they new or kept, and of the questions.
        self.prompt_tokens = self.completion_tokens = 0

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Hold the client's connections of one event loop."""
        return self.client.opened()

    async def ask(self, question: Question, check: Callable[[str], T]) -> T:
        """Return what `check` makes of the answer; several who ask the same at once share one request.

        Nothing is sent if the question's key has an answer.

        Raises:
            Rejected: The answer, now or before, failed the check, was cut or held back.
            ContextOverflow: The question is too long for the model, now or before.
            BudgetSpent, LlmDenied, LlmRefused, LlmUnavailable: As `LlmClient.ask`.
        """
        key = question.key(self.model)
        async with self._asking.setdefault(key, asyncio.Lock()):
            kept = self.answers.find(key)
            if kept is None:
                return await self._fetch(question, key, check)
        self.answers.keep(kept, question.doc_ids)
        return self._again(kept, check)

    def _again(self, kept: KeptAnswer, check: Callable[[str], T]) -> T:
        self.ledger.counts["cached" if kept.rejected is None else "replayed"] += 1
        self._count(kept)
        if kept.rejected == TOO_LONG:
            raise ContextOverflow(TOO_LONG)
        if kept.rejected is not None:
            raise Rejected(kept.rejected)
        return check(kept.text)

    async def _fetch(self, question: Question, key: str, check: Callable[[str], T]) -> T:
        context, tokens = self.client.endpoint.context, guessed_tokens(question.n_bytes())
        if context is not None and tokens + question.sampling.max_tokens > context:
            self.ledger.counts["overflows"] += 1
            raise ContextOverflow(TOO_LONG)
        try:
            reply = await self.client.ask(question)
        except ContextOverflow:
            self._keep(question, key, None, TOO_LONG)
            raise
        try:
            if reply.finish in _ENDS:
                raise Rejected(_ENDS[reply.finish])
            checked = check(reply.text)
        except Rejected as found:
            # Some servers say `stop` of an answer that is as long as it may be, and breaks off there.
            written = reply.usage.completion_tokens if reply.usage else 0
            rejection = Rejected(CUT) if written >= question.sampling.max_tokens else found
            self.ledger.counts["rejected"] += 1
            self._keep(question, key, reply, rejection.reason)
            raise rejection from found
        self.ledger.counts["accepted"] += 1
        self._keep(question, key, reply, None)
        return checked

    def keep(self, question: Question, text: str) -> None:
        """Keep what is known to be the answer to a question that was not sent as it is."""
        self._keep(question, question.key(self.model), Reply(text, "stop", None), None)

    def _keep(self, question: Question, key: str, reply: Reply | None, rejected: str | None) -> None:
        usage = reply.usage if reply else None
        answer = KeptAnswer(
            key=key, model=self.model, prompt=question.prompt, attempt=question.attempt,
            text=reply.text.encode(errors="replace").decode() if reply else "", rejected=rejected,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            made_at=datetime.now(UTC).isoformat(),
        )  # fmt: skip
        self._count(answer)
        self.answers.keep(answer, question.doc_ids)

    def _count(self, answer: KeptAnswer) -> None:
        self.prompt_tokens += answer.prompt_tokens or 0
        self.completion_tokens += answer.completion_tokens or 0


def open_cache(endpoint: Endpoint, answers: Answers, ledger: Ledger, **options: Any) -> AnswerCache:  # noqa: ANN401
    """Return the cache of an endpoint; what it takes of the protocol is remembered beside the answers.

    The caller closes `answers`; `options` are `slot`, `clock`, `sleep` and `random` of `LlmClient`.
    """
    name = f"{endpoint.base_url}|{endpoint.model}"
    known = answers.offered(name).get(_DIALECT)
    client = LlmClient(
        endpoint,
        ledger,
        dialect=Dialect(**json.loads(known)) if known else None,
        learnt=lambda dialect: answers.learn(name, _DIALECT, json.dumps(asdict(dialect))),
        **options,
    )
    return AnswerCache(client, answers)
