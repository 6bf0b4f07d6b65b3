"""Errors between a question and its answer, by type, because callers treat each differently."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from storage.errors import SkilleryError, TerminalError, TransientError
from tasks.models.retry import retry_after

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:context|input|sequence)|too many (?:input )?tokens"
    r"|(?:prompt|input|request|message)s?(?: is| are)? too (?:long|large)|reduce the length"
    r"|exceeds? the model",
    re.IGNORECASE,
)
_EMPTY_ACCOUNT = re.compile(
    r"insufficient_quota|insufficient balance|billing_hard_limit|billing hard limit", re.IGNORECASE
)
_DENIALS = {
    **dict.fromkeys((401, 403), "denies access ({}): check SKILLERY_LLM_API_KEY"),
    404: "has no such path or model ({}): check SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL",
}


class LlmDenied(TerminalError):
    """The server does not let us in (401, 403), or has no such model or path (404): stop at once."""


class LlmRefused(TerminalError):
    """The server refuses this one question (400, 413, 422): another, or half of it, may pass."""


class ContextOverflow(LlmRefused):
    """The question is longer than the model's context: ask about less."""


class LlmUnavailable(TransientError):
    """No answer came, however often the question was sent.

    The reason is `rate-limited`, `server`, `timeout`, `connection`, `cut`, `no-answer` (something else than a
    chat completion) or `given-up`; `retry_after` the seconds that the server wants, None: it did not say.
    """

    def __init__(self, reason: str, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.retry_after = retry_after


class BudgetSpent(TerminalError):
    """The ceiling of tokens or money is reached, or the server says that the account is empty."""


TOO_LONG = "the question does not fit the model's context"
CUT = "the answer was cut at its longest"
FILTERED = "the server's filter held the answer back"


class Rejected(TerminalError):
    """The answer is not what was asked for; the message says why, in words that the model may be told."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def final(self) -> bool:
        """Whether asking the same again is useless: less must be asked for."""
        return self.reason in (TOO_LONG, CUT, FILTERED)


def error_of_status(status: int, headers: Mapping[str, str], body: str, now: datetime) -> SkilleryError:
    """Return the error that an answer with a status of 400 or above stands for.

    `body` is the server's words, any credential hidden; `now` the time, for a `Retry-After` that is a date.
    """
    said = f"status {status}: {' '.join(body.split())[:300]}"
    if status in _DENIALS:
        return LlmDenied(f"the LLM server {_DENIALS[status].format(said)}")
    if status == 402 or (status == 429 and _EMPTY_ACCOUNT.search(body)):
        return BudgetSpent(f"the LLM server says that the account is empty ({said})")
    fault_of_server = status >= 500
    if (fault_of_server or status in {400, 413, 422}) and _TOO_LONG.search(body):
        return ContextOverflow(f"too long for the model ({said})")
    if fault_of_server or status in {408, 409, 425, 429}:
        reason = "rate-limited" if status == 429 else "server"
        return LlmUnavailable(reason, said, retry_after=retry_after(headers, now))
    return LlmRefused(f"the LLM server refuses the question ({said})")
