"""The prompt that asks an LLM whether a context suffices, and the check of its answer."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.question import Question, Sampling
from tasks.models.llm.quoting import data_block, quoted

PROMPT = "judge-1"

"""Raised whenever a word of what is sent changes, in `data/judge_prompt.txt` or here."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"missing": {"type": "string"}, "sufficient": {"type": "boolean"}},
    "required": ["missing", "sufficient"],
    "additionalProperties": False,
}
_WORDS = {"true": True, "yes": True, "sufficient": True, "false": False, "no": False, "insufficient": False}


def judge_question(
    request: str,
    context: str,
    *,
    sampling: Sampling,
    vote: int,
    complaint: str | None = None,
    doc_id: str,
) -> Question:
    """Return the question for one vote on one context, which is quoted as data.

    Neither ids nor the method are sent, so that equal contexts share their votes.

    Args:
        request: What someone asks.
        context: What a method returned.
        sampling: How the answer is drawn.
        vote: Which vote, from 0.
        complaint: What was wrong with the answer before this one.
        doc_id: The document that the context comes from.
    """
    record = data_block([quoted({"request": request, "excerpt": context})])
    parts = [record, "Does the excerpt suffice for the request?"]
    if complaint is not None:
        parts.append(f"An earlier answer could not be used. What was wrong: {quoted({'error': complaint})}")
    messages = (("system", _rules()), ("user", "\n\n".join(parts)))
    return Question(PROMPT, messages, sampling, _SCHEMA, vote, (doc_id,))


def checked_vote(text: str) -> bool:
    """Return what an answer says.

    Raises:
        Rejected: It has no JSON object with `sufficient`, or that is neither true nor false.
    """
    value = find_json(text)
    said = value.get("sufficient") if isinstance(value, dict) else None
    verdict = _WORDS.get(said.strip().casefold()) if isinstance(said, str) else said
    if not isinstance(verdict, bool):
        reason = 'the answer is no object with "sufficient" true or false'
        raise Rejected(reason)
    return verdict


@functools.cache
def _rules() -> str:
    file = resources.files("tasks.evaluate").joinpath("data/judge_prompt.txt")
    return file.read_text(encoding="utf-8").strip()
