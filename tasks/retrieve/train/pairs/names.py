"""Names of skills, which are taken out of requests, and out of texts that would be found by them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from tasks.retrieve.routing.terms import term_sequence
from tasks.retrieve.train.pairs.pieces import words_of

_KIND = r"(?:\s+(?:skill|agent|tool|command|plugin|cli|workflow))?"


class Names:
    """The names of one skill: its own, and those of its folder and its file; written apart or together."""

    def __init__(self, names: Iterable[str]) -> None:
        words = {tuple(words_of(name)) for name in names}
        self._words = sorted(filter(None, words), key=lambda found: (-len(found), found))

    @cached_property
    def _pattern(self) -> str:
        return "|".join(r"[\W_]*".join(map(re.escape, words)) for words in self._words)

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return re.compile(rf"(?i)(?<![^\W_])[/@$]?(?:{self._pattern})(?![^\W_])" if self._words else r"(?!)")

    @cached_property
    def _aside(self) -> re.Pattern[str]:
        """A name without which a request stays whole: "with NAME" at its end, "use NAME to" before it."""
        name = rf"(?:the\s+)?[/@$]?(?:{self._pattern}){_KIND}" if self._words else r"(?!)"
        return re.compile(
            rf"(?i)^(?:(?:please\s+)?(?:use|run|invoke|ask|have)\s+)?{name}\s*(?:[:,]|\s(?:to|for)\s)\s*"
            rf"|\s+(?:using|with|via|through|in|by)\s+{name}(?=\s*[,.?!]|\s*$)"
        )

    def within(self, text: str) -> bool:
        """Tell whether a text holds one of the names, its words in order and in any case."""
        return bool(self._any.search(text))

    def out_of_request(self, query: str) -> str | None:
        """Return a request without the names, None if it does not stand without them."""
        left = self._aside.sub("", query).strip()
        return None if self.within(left) else left[:1].upper() + left[1:]

    def out_of_text(self, text: str, query: str) -> str:
        """Return a text without the names if a request has all words of one of them, in whatever order."""
        asked = set(term_sequence(query))
        won = any(set(term_sequence(" ".join(words))) <= asked for words in self._words)
        return self._any.sub("", text) if won else text
