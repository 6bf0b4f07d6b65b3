"""The prompt that asks a language model whether a context suffices, and the check of its answer."""

from __future__ import annotations

from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import messages_of, object_schema
from tasks.models.llm.question import Question, Sampling

PROMPT = "judge-1"

"""Raised whenever a word of what is sent changes, in `data/judge_prompt.txt` or here."""

_SCHEMA = object_schema(missing={"type": "string"}, sufficient={"type": "boolean"})
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
        vote: Number of the vote, from 0.
        complaint: What was wrong with the answer before.
        doc_id: The document of the context.
    """
    record = {"request": request, "excerpt": context}
    asked = "Does the excerpt suffice for the request?"
    messages = messages_of("tasks.evaluate", "judge_prompt.txt", record, asked, complaint)
    return Question(PROMPT, messages, sampling, _SCHEMA, vote, (doc_id,))


def checked_vote(text: str) -> bool:
    """Return an answer's verdict; `Rejected`: it has no JSON object with `sufficient`, true or false."""
    value = find_json(text)
    said = value.get("sufficient") if isinstance(value, dict) else None
    verdict = _WORDS.get(said.strip().casefold()) if isinstance(said, str) else said
    if not isinstance(verdict, bool):
        reason = 'the answer is no object with "sufficient" true or false'
        raise Rejected(reason)
    return verdict
