"""What a server's refusals and the client library's errors mean for the caller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from storage.errors import SkilleryError
from tasks.models.llm_errors import BudgetSpent, ContextOverflow, LlmDenied, LlmRefused, LlmUnavailable
from tasks.models.llm_retry import retry_after

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:context|input|sequence)|too many (?:input )?tokens"
    r"|(?:prompt|input|request|message)s?(?: is| are)? too (?:long|large)|reduce the length"
    r"|exceeds? the model",
    re.IGNORECASE,
)
_EMPTY_ACCOUNT = ("insufficient_quota", "insufficient balance", "billing_hard_limit", "billing hard limit")
_REFUSALS = frozenset({400, 413, 422})


def of_status(status: int, headers: Mapping[str, str], body: str, now: datetime) -> SkilleryError:
    """Return the error that an answer with a status of 400 or above stands for.

    Args:
        status: The HTTP status.
        headers: Names in any case that the mapping folds.
        body: The server's words, any credential hidden.
        now: For a `Retry-After` that is a date.
    """
    said = f"status {status}: {' '.join(body.split())[:300]}"
    if status in (401, 403):
        return LlmDenied(f"the LLM server denies access ({said}): check SKILLERY_LLM_API_KEY")
    if status == 404:
        settings = "SKILLERY_LLM_BASE_URL and SKILLERY_LLM_MODEL"
        return LlmDenied(f"the LLM server has no such path or model ({said}): check {settings}")
    if status == 402 or (status == 429 and any(words in body.lower() for words in _EMPTY_ACCOUNT)):
        return BudgetSpent(f"the LLM server says that the account is empty ({said})")
    if (status in _REFUSALS or status >= 500) and _TOO_LONG.search(body):
        return ContextOverflow(f"too long for the model ({said})")
    if status in (408, 409, 425, 429) or status >= 500:
        reason = "rate-limited" if status == 429 else "server"
        return LlmUnavailable(reason, said, retry_after=retry_after(headers, now))
    return LlmRefused(f"the LLM server refuses the question ({said})")
