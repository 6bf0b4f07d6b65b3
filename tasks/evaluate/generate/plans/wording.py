"""Wording: puts the steps of a shape into one request, and remembers where each is said."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tasks.evaluate.generate.plans.shapes import Shape, Thread
from tasks.evaluate.generate.plans.spoken import (
    IMPERATIVE,
    NOUN,
    PASSIVE,
    QUESTION,
    WISH,
    SpokenNeed,
    say,
)  # fmt: skip
from tasks.evaluate.generate.plans.tables import Tables

_CONTEXT = 0.3  # share of requests with a sentence that matters to no step
_EXPLAINED_FIRST = 0.7  # share of those sentences that stand before the request
_HALF = 0.5
_MOODS = (IMPERATIVE, IMPERATIVE, QUESTION, WISH, PASSIVE)
_LATER = (IMPERATIVE, IMPERATIVE, WISH, PASSIVE)
_APART = ("Separately, ", "Something else: ", "Also, ", "Besides, ", "One more thing: ", "And ")

_CAUSES = ("anything stands out", "there is anything new", "you find anything worth knowing")
_FIRSTS = ("", "First, ", "Please ", "To begin with, ")
_NEXTS = ("Then ", "After that, ", "Afterwards, ", "")


@dataclass(slots=True)
class _RequestText:
    """A text that grows by pieces; those of a step are remembered."""

    text: str = ""
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, piece: str, step: int | None = None) -> None:
        if re.search(r"(?:^|[.?!] )$", self.text):
            piece = piece[:1].upper() + piece[1:]
        start = len(self.text)
        self.text += piece
        if step is not None:
            self.spans[step] = (start, len(self.text))

    def end(self, mark: str = ".") -> None:
        self.text += f"{mark} "


@dataclass(frozen=True, slots=True)
class Worded:
    """A request: its text, where each step is said, and what is special in how it is told."""

    query: str
    spans: tuple[tuple[int, int], ...]
    tags: frozenset[str]


class _Thread:
    """One thread's steps as they are worded."""

    def __init__(
        self, text: _RequestText, thread: Thread, first: int, steps: Sequence[SpokenNeed], tables: Tables,
        chance: random.Random,
    ) -> None:  # fmt: skip
        self.text, self.thread, self.chance, self.tables = text, thread, chance, tables
        self.steps = {first + k: step for k, step in enumerate(steps)}
        numbers = list(self.steps)
        self.sources, self.later = numbers[: thread.sources], numbers[thread.sources :]

    def say(self, number: int, mood: str, given: str = "it") -> None:
        said = say(self.steps[number], mood, self.tables, self.chance, given)
        self.text.add(said, number)

    def joined(self, numbers: Sequence[int], mood: str, last: str = " and ") -> None:
        for place, number in enumerate(numbers):
            if place:
                self.text.add(last if place == len(numbers) - 1 else ", ")
            self.say(number, mood)

    def given(self, number: int) -> str:
        """Return what stands for what a later step works on."""
        change = self.later[0] if self.thread.changes else None
        if change is not None and number != change:
            return self.steps[change].gives
        if len(self.sources) > 1:
            many = ("all of that", "everything", "the results", "all of it")
            return self.chance.choice(("both", "both of them", *many[:3]) if len(self.sources) == 2 else many)
        only = self.steps[self.sources[0]]
        return self.chance.choice(("them", "the results") if only.plural else ("it", "the result", "that"))

    def tell_later(self, *, lead: str = "", mark: bool = True) -> None:
        """Add the steps after the sources, in one sentence."""
        self.text.add(lead)
        changes, deliveries = self.later[: self.thread.changes], self.later[self.thread.changes :]
        for number in changes:
            self.say(number, IMPERATIVE, self.given(number))
            if deliveries:
                self.text.add(self.chance.choice((", and then ", " and ")))
        for place, number in enumerate(deliveries):
            if place:
                self.text.add(self.chance.choice((" and ", ", and ")))
            self.say(number, IMPERATIVE, self.given(number))
        if len(deliveries) > 1:
            self.text.add(self.chance.choice((" too", " as well", "")))
        if mark:
            self.text.end()


def _in_one_sentence(t: _Thread) -> None:
    """Say `look up A, find B and then post both`."""
    if not t.later:
        return _in_sentences(t)
    t.joined(t.sources, IMPERATIVE, ", ")
    leads = (", then ",) if len(t.later) > 1 else (", and then ", ", then ", " and ")
    t.tell_later(lead=t.chance.choice(leads))
    return None


def _in_sentences(t: _Thread) -> None:
    """Say each step in a sentence of its own, in moods that differ."""
    for place, number in enumerate(t.sources):
        mood = t.chance.choice(_MOODS)
        if mood == IMPERATIVE and not place and not min(t.steps):
            t.text.add(t.chance.choice(_FIRSTS))
        t.say(number, mood)
        t.text.end("?" if mood == QUESTION else ".")
    if t.thread.deliveries > 1 or t.thread.changes:
        t.tell_later(lead=t.chance.choice(_NEXTS))
    else:
        for number in t.later:
            mood = t.chance.choice(_LATER)
            if mood == IMPERATIVE:
                t.text.add(t.chance.choice(_NEXTS))
            t.say(number, mood, t.given(number))
            t.text.end()


def _collected(t: _Thread) -> None:
    """Say `I need A, B and C, and then post all of it`."""
    t.text.add(t.chance.choice(("I need ", "I'd like to have ", "We need ", "Get me ")))
    t.joined(t.sources, NOUN)
    if t.chance.random() < _HALF:
        t.text.end()
        t.tell_later(lead=t.chance.choice(("Once you have that, ", "Then ", "When that is done, ")))
    else:
        t.tell_later(lead=t.chance.choice(("; then ", ", and then ")))


def _listed(t: _Thread) -> None:
    """Say `I need a page in P with the following: A, B and C`."""
    t.text.add(t.chance.choice(("I need ", "Please prepare ", "Could I have ", "What I want is ")))
    t.say(t.later[0], NOUN)
    t.text.add(t.chance.choice((" with the following: ", " with this in it: ", ": ")))
    t.joined(t.sources, NOUN)
    t.text.end()


def _once(t: _Thread) -> None:
    """Say `once you have looked up A, post it`, or the other way round."""
    source, (later, *_) = t.steps[t.sources[0]], t.later
    done = f"{source.verb[1]} {source.what}"
    lead = t.chance.choice(("once you have ", "as soon as you have ", "after you have "))
    if t.chance.random() < _HALF:
        t.text.add(lead)
        t.text.add(done, t.sources[0])
        t.text.add(", ")
        t.say(later, IMPERATIVE, t.given(later))
    else:
        t.say(later, IMPERATIVE, "the result")
        t.text.add(f" {lead}")
        t.text.add(done, t.sources[0])
    t.text.end()


def _if(t: _Thread) -> None:
    """Say a delivery that is wanted only if the source gives cause."""
    (source,), (later,) = t.sources, t.later
    told = t.chance.randrange(3)
    if told == 0:
        t.say(source, IMPERATIVE)
        t.text.add(f", and if {t.chance.choice(_CAUSES)}, ")
        t.say(later, IMPERATIVE, "it")
    elif told == 1:
        t.say(source, QUESTION)
        t.text.end("?")
        t.text.add(f"If {t.chance.choice(_CAUSES)}, ")
        t.say(later, IMPERATIVE, "that")
    else:
        t.say(source, IMPERATIVE)
        t.text.end()
        t.say(later, IMPERATIVE, "it")
        t.text.add(f", but only if {t.chance.choice(_CAUSES)}")
    t.text.end()


def _in_order(t: _Thread) -> None:
    """Say `first do A, then B, and after that C`."""
    t.text.add(t.chance.choice(("first ", "please first ", "")))
    for place, number in enumerate(t.sources):
        if place == len(t.sources) - 1:
            finally_ = (", and finally ",) if place > 1 else ()
            t.text.add(t.chance.choice((", and after that ", ", and then ", *finally_)))
        elif place:
            t.text.add(t.chance.choice((", then ", ", next ")))
        t.say(number, IMPERATIVE)
    t.text.end()


def _ways(t: _Thread) -> list[Callable[[_Thread], None]]:
    thread, things = t.thread, all(t.steps[number].is_thing for number in t.sources)
    if thread.condition:
        return [_if]
    if thread.sequence:
        return [_in_order]
    found: list[Callable[[_Thread], None]] = [_in_one_sentence, _in_sentences]
    if things and thread.sources > 1 and thread.steps > thread.sources:
        found.append(_collected)
    if things and thread.sources > 1 and not thread.changes and thread.deliveries == 1:
        found.append(_listed)
    if thread.sources == 1 and thread.steps == 2:  # a source, and one step that works on it
        found.append(_once)
    return found


def worded(shape: Shape, steps: Sequence[SpokenNeed], tables: Tables, chance: random.Random) -> Worded:
    """Return a request for the steps of a shape, in ways that are drawn."""
    text, tags, first = _RequestText(), set(shape.tags()), 0
    place_of_context = "before" if chance.random() < _EXPLAINED_FIRST else "after"
    context = chance.choice(tables.contexts[place_of_context]) if chance.random() < _CONTEXT else ""
    context = tables.filled(context, chance)
    if context:
        tags.add("context")
    if place_of_context == "before" and context:
        text.add(f"{context} ")
    for place, thread in enumerate(shape.threads):
        if place:
            text.add(chance.choice(_APART))
        told = _Thread(text, thread, first, steps[first : first + thread.steps], tables, chance)
        chance.choice(_ways(told))(told)
        first += thread.steps
        if text.spans[first - 1] < text.spans[first - thread.steps]:
            tags.add("reordered")
    if place_of_context == "after" and context:
        text.add(f"{context} ")
    if not all(step.named for step in steps):
        tags.add("implicit")
    spans = tuple(text.spans[number] for number in range(len(steps)))
    return Worded(text.text.strip(), spans, frozenset(tags))
