"""Terms by which code is read, from data: names, patterns, and the hints that spare most code the reading."""

from __future__ import annotations

import functools
import re

from tasks.refine.text.rules import rules_data

_TERMS = "code_terms.yaml"


@functools.cache
def terms() -> dict[str, frozenset[str]]:
    """Return the names by which code is read, by the list that they are in."""
    return {key: frozenset(of_key.split()) for key, of_key in rules_data(_TERMS)["words"].items()}


@functools.cache
def _hints() -> dict[str, tuple[str, ...]]:
    return {key: tuple(of_key) for key, of_key in rules_data(_TERMS)["hints"].items()}


def has_hint(lowered: str, *keys: str) -> bool:
    """Tell whether a text (lower case) holds one of the hints of some lists."""
    return any(any(map(lowered.__contains__, _hints()[key])) for key in keys)


def may_flow(code: str, language: str) -> bool:
    """Tell whether a code has words that make a mark and words that spend one: the cheap test."""
    lowered = code.lower()
    return has_hint(lowered, f"{language}_spent") and has_hint(lowered, f"{language}_made", "secrets")


@functools.cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Return the patterns by which code is read, by their names."""
    of_key = rules_data(_TERMS)["patterns"]
    return {key: re.compile("|".join(given), re.DOTALL) for key, given in of_key.items()}
