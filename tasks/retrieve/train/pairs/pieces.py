"""Pieces: where an author wrote a request in a skill, and the span that is cut from the skill for it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Origin = Literal[
    "description_clause", "description_quote", "description_trigger",
    "body_list", "body_quote", "user_turn", "question_heading", "evals", "written",
]  # fmt: skip
SPOKEN: frozenset[Origin] = frozenset(
    {"description_quote", "body_quote", "user_turn", "question_heading", "evals"}
)

"""Origins whose pieces are a user's own words; others are spoken of a user, or `written` by an LLM."""

READ = 20_000

"""The characters of a body that are read; what follows seldom says what a skill is for."""

Field = Literal["description", "body"]
WORD = re.compile(r"[^\W_]+")
QUOTED = re.compile(r'["“]([^"“”\n]{4,400})["”]|(?<![\w‘])[\'‘]([^\'‘’\n]{8,400})[\'’](?!\w)')
NEGATIVE = re.compile(
    r"(?i)\b(?:not|never|avoid|skip|instead|except|unless|exclud\w+|anti|wrong|bad)\b|n['’]t\b"
)


class Piece(NamedTuple):
    """A request as its author wrote it (`text`), and the half-open span of `field` that is cut for it.

    The span is empty where the request stands in a file beside the skill.
    """

    origin: Origin
    text: str
    field: Field
    start: int
    end: int


def quotes(text: str) -> list[str]:
    """Return what stands in quotation marks, in order."""
    return [(one or other).strip() for one, other in QUOTED.findall(text)]


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.casefold() for word in WORD.findall(text)]
