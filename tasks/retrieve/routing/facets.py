"""The facets of a task, cut without an LLM: its sentences and lines, prose before the rest."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from tasks.refine.text.words import TASK_BREAK, WORD

_LEAST = 3  # words; a shorter piece says nothing by itself
# What an encoder takes in of a longer piece is a blur: it is cut where its words allow.
_LONGEST = 400
# Of rows of numbers, paths and code an encoder of sentences makes nothing, and they are long.
_LETTERS = 0.75
_READ = 20_000  # characters; nobody describes a task at greater length, and logs are no descriptions


def facets(task: str) -> list[str]:
    """Return the sentences and lines of a task that have at least three words, each once, in order.

    Lines of scripts without spaces count by their characters. Only the first 20,000 characters are read.
    """
    pieces = (" ".join(piece.split()) for piece in TASK_BREAK.split(task[:_READ]))
    cut = (part for piece in pieces for part in _cut(piece))
    return list(dict.fromkeys(part for part in cut if _tells(part)))


def _tells(piece: str) -> bool:
    return len(WORD.findall(piece)) >= _LEAST or len(piece.encode()) - len(piece) >= _LEAST


def _cut(piece: str) -> list[str]:
    parts = []
    while len(piece) > _LONGEST:
        space = piece.rfind(" ", _LONGEST // 2, _LONGEST)
        at = space if space > 0 else _LONGEST
        parts.append(piece[:at])
        piece = piece[at:].lstrip()
    return [*parts, piece]


def readable(pieces: Sequence[str], most: float) -> list[str]:
    """Return pieces, in order, whose tokens add up to at most `most`, prose first; at least one piece.

    A piece that is too long for the rest of the budget is skipped. Tokens are counted by `about_tokens`.
    """
    taken: set[str] = set()
    left = most
    for piece in sorted(pieces, key=_is_prose, reverse=True):  # stable: prose in order, then the rest
        cost = about_tokens(piece)
        if cost <= left or not taken:
            taken.add(piece)
            left -= cost
    return [piece for piece in pieces if piece in taken]


def _is_prose(piece: str) -> bool:
    signs = "".join(piece.split())
    # Vowel signs of Indic and Semitic scripts are marks, and not letters by themselves.
    letters = sum(c.isalpha() or unicodedata.category(c).startswith("M") for c in signs)
    return letters >= _LETTERS * len(signs)


def about_tokens(text: str) -> float:
    """Return the approximate number of tokens of a text: one for four letters, one for any other sign."""
    foreign = sum(not c.isascii() for c in text)
    return 2 + foreign + (len(text) - foreign) / 4
