"""Parses the one JSON value in a model's answer, whatever text is around it."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tasks.models.llm.errors import Rejected

_THOUGHT_OVER = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_START = re.compile(r"[{\[]")
_LONGEST = 200_000  # characters of an answer that are looked at; what is longer is no answer
_MOST_BRACKETS = 500  # where a value may begin: nonsense costs a bounded time


def find_json(text: str) -> Any:  # noqa: ANN401
    """Return the object or list in an answer: bare, fenced, or within prose; thoughts in tags are skipped.

    Raises:
        Rejected: There is none, or several that differ; or a key twice in one object, or NaN, is in it.
    """
    found: list[Any] = []
    said = without_thoughts(text)
    decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_number)
    position = 0
    for _ in range(_MOST_BRACKETS):
        if (start := _START.search(said, position)) is None:
            break
        try:
            value, position = decoder.raw_decode(said, start.start())
        except (ValueError, RecursionError):  # of a number of thousands of digits, a bare ValueError
            position = start.end()
            continue
        # Brackets around nothing, or around a word of prose, are no answer.
        if value and value not in found:
            found.append(value)
    if not found:
        raise Rejected("there is no complete JSON object in the answer")
    if len(found) > 1:
        raise Rejected(f"there are {len(found)} JSON values in the answer instead of one")
    return found[0]


def without_thoughts(text: str) -> str:
    """Return an answer, as far as answers are read, without the thoughts in tags that come before it."""
    return _THOUGHT_OVER.split(text[:_LONGEST])[-1]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise Rejected(f"the key {twice[:40]!r} occurs more than once")
    return record


def _no_number(constant: str) -> float:
    raise Rejected(f"{constant} is no JSON number")
