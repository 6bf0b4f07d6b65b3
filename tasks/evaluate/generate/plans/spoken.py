"""Spoken needs: how one step is said, in each mood."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tasks.evaluate.generate.plans.needs import ABOUT, Need, is_plural
from tasks.evaluate.generate.plans.tables import Spoken, Tables

IMPERATIVE, QUESTION, WISH, PASSIVE, NOUN = "imperative", "question", "wish", "passive", "noun"
_DETERMINER = re.compile(r"(?:an?|the|some|my|our) |\w+'s ", re.IGNORECASE)
_PREPOSITION = re.compile(r"\s(?:from|of|in|on|for|about)\s")
_KNOWN = ("look up", "looked up"), ("find out", "found out")
_NAMED = 0.85  # share of steps that name their product where they need not
_DETAILED = 0.8
_WISHES = {
    "find": ("I need {what}", "I'd like to see {what}", "{name} is asking for {what}", "I want {what}"),
    "check": ("I'd like to have {what} {done}", "{name} wants {what} {done}"),
    "make": ("I'd like to have {what} {done}", "{name} wants {what} {done}"),
    "act": ("I'd like to have {what} {done}", "{name} wants {what} {done}"),
}


@dataclass(frozen=True, slots=True)
class SpokenNeed:
    """A need as one request says it, with all that was drawn for it."""

    need: Need
    what: str  # the noun phrase; empty for what is done with what other steps give
    verb: Spoken
    named: bool  # the product is said
    words: tuple[str, ...]  # in lower case; each is in every way to say it
    any_of: tuple[str, ...]  # in lower case; one of them is
    gives: str  # what a change or delivery gives
    description: str

    @property
    def plural(self) -> bool:
        """Whether `them` stands for it."""
        return bool(self.need.about) and is_plural(self.need.noun)

    @property
    def is_thing(self) -> bool:
        """Whether naming it is asking for it: it is no clause, and nothing to be worked on."""
        return self.need.role == "find" and not self.what.startswith("what ")


def spoken(need: Need, tables: Tables, chance: random.Random) -> SpokenNeed:
    """Return a need with its details, its verb and whether its product is said, drawn."""
    kind = tables.kinds.get(need.verb) if not need.about else None
    if kind is None:
        return _derived(need, tables, chance)
    named = bool(need.product and kind.named) and (not kind.unnamed or chance.random() < _NAMED)
    words = (need.product.lower(),) if named and need.product else ()
    description = f"{kind.description} with {need.product}" if named else kind.description
    if not kind.verb:
        return SpokenNeed(need, "", ("", ""), named, words, kind.words, kind.gives, description)
    phrase = chance.choice((kind.named if named else kind.unnamed)[NOUN])
    what = tables.filled(phrase, chance, p=_tail(kind.tail, need, phrase))
    verb = chance.choice(_KNOWN if what.startswith("what ") else tables.spoken[kind.verb])
    return SpokenNeed(need, what, verb, named, words, kind.words, "", description)


def _derived(need: Need, tables: Tables, chance: random.Random) -> SpokenNeed:
    verbs = tables.spoken[need.verb]
    verb = chance.choice(verbs)
    other = chance.choice([pair for pair in verbs if pair != verb] or [verb])[0].replace(" me", "")
    if need.noun == ABOUT:
        what = tables.filled(f"what {need.about} has on {{topic}}", chance)
        said_as = (need.about.lower(),)
        return SpokenNeed(
            need, what, chance.choice(_KNOWN), True, said_as, said_as, "", f"search {need.about}"
        )
    what = need.about
    said = need.product is not None and re.search(rf"\b{re.escape(need.product)}\b", what, re.I) is not None
    detail = _detail(need, tables, chance)
    if need.role not in ("act", "make") and not _DETERMINER.match(what):
        what = what if detail and is_plural(need.noun) else f"the {what}"
    clear = len(need.about.split()) > 1
    named = said or bool(need.product and (not clear or chance.random() < _NAMED))
    if named and not said:
        preposition = "from" if need.verb in tables.words["from"] else "in" if need.role == "find" else "with"
        tail = f"{preposition} {need.product}"
        what = f"{what} {detail} {tail}" if need.role == "check" and detail else f"{what} {tail} {detail}"
    else:
        what = f"{what} {detail}"
    words = list(dict.fromkeys(re.findall(r"[\w'-]+", need.about.lower())))
    words += [need.product.lower()] if named and not said and need.product else []
    described = f"{other} {need.about}" + (f" ({need.product})" if named and not said else "")
    return SpokenNeed(need, what.strip(), verb, named, tuple(words), tuple(words), "", described)


def _detail(need: Need, tables: Tables, chance: random.Random) -> str:
    """Return what narrows a need, drawn; a topic only where the row's words leave it open."""
    rest = need.about.replace(need.product, "") if need.product else need.about
    if need.role in ("act", "make") or _PREPOSITION.search(
        rest.removesuffix(" from ").removesuffix(" on ").rstrip() + "."
    ):
        return ""
    narrowed = set(rest.lower().split()) - tables.words["open"] - {need.noun, "from", "on", "in"}
    phrase = tables.detail(need.noun, chance, topics=need.general and not narrowed)
    return phrase if chance.random() < _DETAILED else ""


def _tail(preposition: str, need: Need, phrase: str) -> str:
    return f"{preposition} {need.product}" if "{p}" in phrase else ""


def say(one: SpokenNeed, mood: str, tables: Tables, chance: random.Random, given: str = "it") -> str:
    """Return how a step is said, without a mark at its end; `given` is what stands for what others give."""
    kind = tables.kinds.get(one.need.verb) if not one.what else None
    if kind is not None:
        moods = kind.named if one.named else kind.unnamed
        phrase = chance.choice(moods[IMPERATIVE if mood == QUESTION else mood])
        tail = f"{kind.tail} {one.need.product}"
        subject = "they" if given == "them" and phrase.startswith("{r}") else given
        text = tables.filled(phrase, chance, r=subject, p=tail)
        return f"{chance.choice(('can you', 'could you'))} {text}" if mood == QUESTION else text
    verb, done = one.verb
    if mood == NOUN:
        return one.what
    if mood == WISH:
        known = one.what.startswith("what ")
        phrase = "I'd like to know {what}" if known else chance.choice(_WISHES[one.need.role])
        return tables.filled(phrase, chance, what=one.what, done=done)
    if mood == PASSIVE:
        return f"{one.what} should be {done}"
    text = f"{verb} {one.what}"
    return f"{chance.choice(('can you', 'could you'))} {text}" if mood == QUESTION else text
