"""Needs that served rows can serve: what a row's own text says that it does, and for which product."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.evaluate.generate.plans.products import clean, common_words, product_of
from tasks.evaluate.generate.plans.served_rows import ServedRow
from tasks.evaluate.generate.plans.tables import Tables

_DOUBLED = {"get": "gett", "scan": "scann", "run": "runn", "plan": "plann", "split": "splitt"}
_STOP = re.compile(
    r"[,.;:|/!?\"&+]|\s(?:with|using|via|through|by|that|which|while|without|including|such|based|directly|inside|"
    r"within|when|where|so|as|across|to|like|between|programmatically|securely|is|are|can|over|into|at|than|and|or|"
    r"against|during|per|under|only)\b|\sfor (?:ai|llms?|agents?|claude|any|your|use|further|better)\b",
    re.IGNORECASE,
)
_TITLES = re.compile(
    r"^(?:(?:the|all|its|latest|newest|real-time|up-to-date|live|current|detailed|various|multiple|structured|"
    r"accurate|your|any|comprehensive|relevant|specific|recent)\s+)+",
    re.IGNORECASE,
)
_LONGEST = 6  # words of what a verb is about
_ACCESS = re.compile(
    r"\b(?:provid\w+|giv\w+|offer\w+|with|for|enabl\w+|expos\w+)(?: \w[\w-]*){0,3} access to\b", re.IGNORECASE
)
# What names a place in which everything of a product lies.
_WHOLE = re.compile(
    r"'s (?:\w+ )?(?:library|database|collection|catalog|platform)\b.*| (?:in|from) (?:the|their) (?:\w+ )?"
    r"(?:collection|database|library|platform)$"
)
_ANSWERS = re.compile(
    r"\b(?:articles?|stories|docs|documentation|photos?|papers|posts|wiki\w*|encyclop\w+|web)\b", re.I
)
_BARE = re.compile(r"(?:via|from|on|in|of|for|with|about|by|at|and|or)\b", re.IGNORECASE)
_DOING = frozenset({"make", "act"})
_FIELD = re.compile(
    r"\b(?:crypto\w*|blockchain|web3|defi|bitcoin|coin\w*|financ\w+|stocks?|market|medical|clinical|health|legal|"
    r"bugs?|bug tracking|developer|code|npm|package|game|sports?|chess|java|react|kubernetes)\b",
    re.IGNORECASE,
)
_AND = frozenset({"and", "or", "/", "&", "+"})
_ENDS_OPEN = re.compile(r"(?:ed|ly|ing)$")
_PREPOSITION = re.compile(r"\s(?:from|of|in|on|for|about)\s")
ABOUT = "what"
"""The noun of a need that asks a named product for anything on a topic."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a row's text says that it does: verb and what it is about, or a kind of delivery or change."""

    row: int  # its place
    role: str  # `find`, `check`, `make`, `act`, `deliver` or `change`
    verb: str  # the lemma, or the kind's name
    about: str  # as in the row's text; empty for kinds
    noun: str  # the head of `about`, in lower case; the kind's name for kinds
    product: str | None
    general: bool = True  # the row is about no field of its own, so that any topic may be asked for


@dataclass(frozen=True, slots=True)
class Found:
    """The needs of rows, the product of each row, and how many rows have no need, by reason.

    `no-description`; `no-verb`, where nothing in it says what the row does; `unclear`, where it is said in
    words that no request would have.
    """

    needs: tuple[Need, ...]
    products: tuple[str | None, ...]
    left_out: Mapping[str, int]


def needs_of(rows: Sequence[ServedRow], tables: Tables) -> Found:
    """Return what rows can serve, in their order, each need once a row."""
    texts = [clean(row.description) for row in rows]
    common, found, left = common_words(texts), list[Need](), Counter[str]()
    unfit = tables.words["no_product"] | tables.roles.keys()  # `Generate` begins a text, and is no product
    products = tuple(product_of(r.doc_id, text, common, unfit) for r, text in zip(rows, texts, strict=True))
    verbs = _Verbs(tables)
    for place, (text, product) in enumerate(zip(texts, products, strict=True)):
        own = [*verbs.needs(place, text, product), *_kinds(place, text, product, tables)]
        found += own
        if not own:
            left["no-description" if not text else "unclear" if verbs.found(text) else "no-verb"] += 1
    return Found(tuple(found), products, left)


def _kinds(place: int, text: str, product: str | None, tables: Tables) -> Iterable[Need]:
    for kind in tables.kinds.values():
        if kind.supports.search(text) and (kind.unnamed or product):
            yield Need(place, kind.role, kind.name, "", kind.name, product if kind.named else None)


def _forms(lemma: str) -> Mapping[str, str]:
    """Return the forms of a verb, each with its name: `base`, `s` or `ing`."""
    first, _, rest = lemma.partition(" ")
    rest = f" {rest}" if rest else ""
    stem = _DOUBLED.get(first, first[:-1] if first.endswith("e") else first)
    ending = "es" if first.endswith(("ch", "x", "sh", "ss")) else "s"
    third = first[:-1] + "ies" if re.search(r"[^aeou]y$", first) else first + ending
    return {first + rest: "base", third + rest: "s", stem + "ing" + rest: "ing"}


class _Verbs:
    """Finds in a text the verbs of the tables, each with what it is about."""

    def __init__(self, tables: Tables) -> None:
        self._roles, self._words, self._jargon = tables.roles, tables.words, tables.jargon
        self._forms = {form: (v, name) for v in tables.roles for form, name in _forms(v).items()}
        verbs = "|".join(sorted(self._forms, key=len, reverse=True))
        self._pattern = re.compile(
            r"(?:(?P<start>^|[.;:!] )|(?P<comma>, )|"
            r"\b(?P<lead>to|that|which|can|for|by|and|or|agents|assistants|llms|users|you),? )"
            rf"(?P<verb>{verbs}) "
            r"(?:(?:to|for|through|over|across|on) )?(?:(?:and|or) [a-z]+ (?:(?:to|for|through) )?)?",
            re.IGNORECASE,
        )

    def found(self, text: str) -> bool:
        """Tell whether a verb stands anywhere in a text."""
        return self._pattern.search(text) is not None

    def needs(self, place: int, text: str, product: str | None) -> list[Need]:
        found: dict[tuple[str, str], Need] = {}
        for sentence in re.split(r"(?<=[.!?;]) ", _ACCESS.sub("to access", text)):
            seen: set[str] = (
                set()
            )  # forms that were verbs in this sentence: others in a row with them are too
            position = 0
            while match := self._pattern.search(sentence, position):
                position = match.start("verb") + 1
                lemma, form = self._forms[match["verb"].lower()]
                if not _is_verb(match, form, seen):
                    continue
                seen.add(form)
                need = self._need(place, lemma, sentence[match.end() :], product)
                if need:
                    need = replace(need, general=_FIELD.search(text) is None)
                    found.setdefault((need.role, need.noun), need)
        return list(found.values())

    def _need(self, place: int, lemma: str, rest: str, product: str | None) -> Need | None:
        stop = _STOP.search(rest)
        mark = stop[0].strip().lower() if stop else ""
        about = _WHOLE.sub("", _TITLES.sub("", (rest[: stop.start()] if stop else rest).strip()))
        if mark in _AND:  # `dogs from European and ...`: what follows the preposition is cut in two
            about = _PREPOSITION.split(about)[0]
        words, role = about.split(), self._roles[lemma]
        if not 1 <= len(words) <= _LONGEST or self._jargon.search(about) or _BARE.match(about):
            return None
        if all(word[0].isupper() for word in words):
            known = about == product and lemma == "search" and _ANSWERS.search(rest) is not None
            return Need(place, "find", lemma, about, ABOUT, about) if known else None
        noun = _PREPOSITION.split(about)[0].split()[-1].lower()
        plural_only = mark in {*_AND, ","} or role not in _DOING or len(words) == 1
        if (
            not self._is_thing(noun, plural_only=plural_only)
            or _ENDS_OPEN.search(about)
            or not self._is_clear(noun, words, product)
        ):
            return None
        return (
            None
            if role in _DOING and noun in self._words["of_kinds"]
            else Need(place, role, lemma, about, noun, product)
        )

    def _is_clear(self, noun: str, words: Sequence[str], product: str | None) -> bool:
        """Tell whether a person who reads the words knows what is wanted."""
        if product is None:
            return len(words) > (2 if noun in self._words["vague"] else 1)
        return noun not in self._words["empty"] or len(words) > 1

    def _is_thing(self, noun: str, *, plural_only: bool) -> bool:
        if not re.fullmatch(r"[a-z][a-z'-]+", noun) or noun.endswith(("ing", "ly", "ed")):
            return False
        return is_plural(noun) or noun in self._words["mass"] or not plural_only


def _is_verb(match: re.Match[str], form: str, seen: set[str]) -> bool:
    """Tell whether a word stands where its form is a verb: `for searching`, `to search`, `that searches`."""
    lead = (match["lead"] or "").lower()
    if match["start"] is not None:
        return True
    if lead in {"to", "can", "agents", "assistants", "llms", "users", "you"}:
        return form == "base"
    if lead in {"for", "by"}:
        return form == "ing"
    if lead in {"that", "which"}:
        return form == "s"
    return form in seen


def is_plural(noun: str) -> bool:
    """Tell whether a noun is taken for a plural, by its ending."""
    return noun.endswith("s") and not noun.endswith(("ss", "us", "is", "news", "analytics"))
