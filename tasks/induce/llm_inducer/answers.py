"""Answers of an LLM about windows: aligned by `window_idx`, and kept window by window."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from storage.answers import KeptAnswer
from tasks.induce.llm_inducer.windows import PROMPT, WINDOWS_ASKED, ShownWindow
from tasks.models.llm.answer_cache import AnswerCache
from tasks.models.llm.errors import Rejected
from tasks.models.llm.parse_json import find_json
from tasks.models.llm.question import Sampling

Answer = Mapping[str, Any]  # what is said of one window, or `{"error": reason}`
_FIELDS = ("reusable", "func_name", "description", "code")


def aligned(count: int) -> Callable[[str], list[dict[str, Any]]]:
    """Return the check of an answer about windows 0 to `count` - 1; it gives what is said of each.

    A window of which nothing, or two things, are said has an `error`. The answer as a whole is refused if it
    is no list of objects with `window_idx`, or has a number that was not given: then none can be trusted.
    """

    def check(text: str) -> list[dict[str, Any]]:
        value = find_json(text)
        rows = value.get("skills", [value]) if isinstance(value, dict) else value
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            reason = 'the answer is no object {"skills": [{"window_idx": 0, ...}, ...]}'
            raise Rejected(reason)
        if any(type(row.get("window_idx")) is not int for row in rows):
            reason = "an entry has no window_idx that is a whole number"
            raise Rejected(reason)
        if wrong := [row["window_idx"] for row in rows if not 0 <= row["window_idx"] < count]:
            reason = f"there is no window_idx {wrong[0]}: they go from 0 to {count - 1}"
            raise Rejected(reason)
        return [_of(number, rows) for number in range(count)]

    return check


def _of(number: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in rows if row["window_idx"] == number]
    if len(own) != 1:
        return {"error": f"there were {len(own)} entries with its window_idx instead of one"}
    return {name: own[0][name] for name in _FIELDS if name in own[0]}


class WindowAnswers:
    """What a model said of each window, kept beside the answers as they came.

    Kept is what was said, right or wrong: whether it may be used depends on the runs that are known, and is
    decided anew each time.
    """

    def __init__(self, book: AnswerCache, sampling: Sampling) -> None:
        self._book, self._sampling = book, sampling

    def find(self, window: ShownWindow) -> Answer | None:
        """Return what was said of a window; None: it was not asked about yet."""
        kept = self._book.answers.find(window.key(self._book.model, self._sampling))
        if kept is None:
            return None
        self._book.ledger.counts["cached"] += 1
        found: Answer = json.loads(kept.text)
        return found

    def keep(self, window: ShownWindow, answer: Answer) -> None:
        """Keep what was said of a window."""
        self._book.answers.keep(
            KeptAnswer(
                key=window.key(self._book.model, self._sampling), model=self._book.model, prompt=PROMPT.name,
                attempt=window.attempt, text=json.dumps(answer), rejected=None, prompt_tokens=None,
                completion_tokens=None, made_at=datetime.now(UTC).isoformat(),
            ),
            (WINDOWS_ASKED,),
        )  # fmt: skip
