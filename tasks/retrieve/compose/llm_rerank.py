"""The LLM rerank of a step's candidates: a language model names the best of ten (SkillWeaver, appendix K)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.models.llm.errors import Rejected
from tasks.models.llm.fallbacks import FallbackLlm, WrittenPrompt
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.prompt import object_schema

PROMPT = WrittenPrompt(
    "compose-rerank-1",
    "tasks.retrieve.compose",
    "step_rerank_rules.txt",
    object_schema(best={"type": "integer"}),
)
DESCRIBED = 140  # characters of a description
_NUMBER = re.compile(r"\s*\[?\s*(\d{1,6})\s*\]?\s*\.?\s*")


class LlmStepReranker:
    """Puts the candidate that a model names first; without a usable answer the order stays."""

    def __init__(self, llm: FallbackLlm) -> None:
        self._llm = llm

    def order(self, task: str, step: str, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the places of all candidates, the best first.

        The model sees the step alone, not the task, as in the paper. Numbers stand for rows, so that no
        answer can name what is not served.

        Raises:
            LlmDenied: The server denies access, or has no such model.
        """
        del task
        places = list(range(len(rows)))
        if len(rows) < 2:
            return places
        shown = [
            {"number": n, "category": row["category"] or "", "description": described(row["description"])}
            for n, row in enumerate(rows, start=1)
        ]
        best = self._llm.ask_checked(
            PROMPT,
            {"step": step, "candidates": shown},
            f"Which of the {len(rows)} candidates does the step best?",
            best_of(len(rows)),
            doc_ids=[row["doc_id"] for row in rows],
        )
        return places if best is None else [best, *(place for place in places if place != best)]


def described(text: str | None) -> str:
    """Return the beginning of a description in one line."""
    return " ".join((text or "").split())[:DESCRIBED]


def best_of(most: int) -> Callable[[str], int]:
    """Return the check of an answer that is one number from 1 to `most`; it gives the place from 0."""

    def check(text: str) -> int:
        if found := _NUMBER.fullmatch(text):
            number: Any = int(found[1])
        else:
            value = find_json(text)
            number = value.get("best") if isinstance(value, dict) else None
        if type(number) is not int or not 1 <= number <= most:
            reason = f'the answer is no object {{"best": number}} with a number from 1 to {most}'
            raise Rejected(reason)
        return number - 1

    return check
