"""The tables of phrases, `data/needs.json`, out of which requests of several steps are worded."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

Spoken = tuple[str, str]
"""A verb as it is said in a request: its base form and its participle."""

_ABOUT = re.compile(r"\{(?:topic|illness)\}")
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of step that many rows serve, with phrases of its own instead of a row's words."""

    name: str
    role: str  # `find`, `check`, `make`, or on what others give `deliver` or `change`
    verb: str  # of those three: the lemma whose forms go with their nouns
    takes: re.Pattern[str] | None  # the nouns that a change works on
    may_be_none: bool  # there may be none of what it asks for, so that a condition on it makes sense
    words: tuple[str, ...]  # one of them is in every phrase
    supports: re.Pattern[str]  # found in the text of a row that does it
    tail: str  # the preposition before its product
    named: Mapping[str, tuple[str, ...]]  # phrases by mood, with the product's place
    unnamed: Mapping[str, tuple[str, ...]]  # the same without; empty where only a product makes it clear
    gives: str
    description: str


@dataclass(frozen=True, slots=True)
class Tables:
    """Verbs by lemma with their roles, kinds, details of nouns, what fills a place, and what says nothing."""

    # Sets of words: nouns without a plural (`mass`), that say nothing of their own (`vague`), or not even
    # with a product (`empty`), that kinds stand for (`of_kinds`); words before a noun that narrow nothing
    # (`open`); verbs whose product is where things come from (`from`); names of no product (`no_product`).
    words: Mapping[str, frozenset[str]]
    jargon: re.Pattern[str]  # words that no person would say who wants something done
    roles: Mapping[str, str]  # of a verb: `find`, `check`, `make` (something comes of it) or `act`
    spoken: Mapping[str, tuple[Spoken, ...]]
    kinds: Mapping[str, Kind]
    details: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]
    slots: Mapping[str, tuple[str, ...]]
    contexts: Mapping[str, tuple[str, ...]]  # sentences that matter to no step, `before` and `after` it

    def filled(self, phrase: str, chance: random.Random, **given: str) -> str:
        """Return a phrase whose places `{name}` are filled: with what is given, or drawn."""
        return _SLOT.sub(lambda m: given.get(m[1]) or chance.choice(self.slots[m[1]]), phrase)

    def detail(self, noun: str, chance: random.Random, *, topics: bool) -> str:
        """Return words that narrow what a noun stands for, drawn; empty where no table knows any.

        Without `topics` they name no topic and no illness.
        """
        for pattern, phrases in self.details:
            fit = [phrase for phrase in phrases if topics or not _ABOUT.search(phrase)]
            if fit and pattern.fullmatch(noun.lower()):
                return self.filled(chance.choice(fit), chance)
        return ""


@functools.lru_cache(maxsize=1)
def packaged_tables() -> Tables:
    """Return the packaged tables."""
    held: dict[str, Any] = json.loads(
        resources.files("tasks.evaluate").joinpath("data", "needs.json").read_text("utf-8")
    )
    words = {name: " ".join(lines).split() for name, lines in held["words"].items()}
    return Tables(
        words={name: frozenset(found) for name, found in words.items()},
        jargon=re.compile(rf"\b(?:{'|'.join(words['jargon'])})\b", re.IGNORECASE),
        roles={lemma: row[0] for lemma, row in held["verbs"].items()},
        spoken={lemma: tuple((a, b) for a, b in row[1:]) for lemma, row in held["verbs"].items()},
        kinds={row["id"]: _kind(row) for row in held["kinds"]},
        details=tuple((re.compile(nouns), tuple(phrases)) for nouns, phrases in held["details"]),
        slots={name: tuple(values) for name, values in held["slots"].items()},
        contexts={place: tuple(said) for place, said in held["contexts"].items()},
    )


def _kind(row: dict[str, Any]) -> Kind:
    named, unnamed = (
        {mood: tuple(phrases) for mood, phrases in row[form].items()} for form in ("named", "unnamed")
    )
    supports = re.compile(row["supports"], re.IGNORECASE)
    takes = re.compile(row["takes"]) if "takes" in row else None
    return Kind(
        row["id"], row["role"], row.get("verb", ""), takes, row.get("may_be_none", False),
        tuple(row["words"]),
        supports, row["tail"], named, unnamed, row["gives"], row["description"],
    )  # fmt: skip
