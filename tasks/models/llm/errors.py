"""Errors between a question and its answer, by type, because callers treat each differently."""

from __future__ import annotations

from storage.errors import TerminalError, TransientError


class LlmDenied(TerminalError):
    """The server does not let us in (401, 403), or has no such model or path (404): stop at once."""


class LlmRefused(TerminalError):
    """The server refuses this one question (400, 413, 422): another, or half of it, may pass."""


class ContextOverflow(LlmRefused):
    """The question is longer than the model's context: ask about less."""


class LlmUnavailable(TransientError):
    """No answer came, however often the question was sent.

    Args:
        reason: `rate-limited`, `server`, `timeout`, `connection`, `cut`, `no-answer` (something else than a
            chat completion) or `given-up`.
        detail: What was seen.
        retry_after: Seconds after which the server wants to be asked again; None: it did not say.
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
