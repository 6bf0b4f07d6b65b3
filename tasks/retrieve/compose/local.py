"""The local decomposer: cuts a task by the labels of its words, which the task model gives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tasks.retrieve.compose.chain import BEGIN, INSIDE, OUT, CountedLabels, counted
from tasks.retrieve.compose.clauses import clauses
from tasks.retrieve.compose.drafts import Draft, DraftStep, LeftOut, Span, leads, words_of
from tasks.retrieve.compose.matches import Matcher
from tasks.retrieve.compose.rounds import chosen_count
from tasks.retrieve.compose.task_model import TaskModel, TaskReading, packaged_model

CONTEXT = "context"  # the reason of what asks for nothing
LEAST = 0.02  # share of a number of steps under which it is not tried
BEYOND = 4  # steps that are looked for beyond those allowed, to say what is left out
_GAP = 12  # characters between parts of a step that are taken as one: a comma, and a word that was left out
_SIGNS = " \t\r\n,;:.!?…。！？、，；-–—→>()[]"
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_LATIN_SHARE = 0.5  # of the letters of a task, from which the model is asked
_CONDITIONAL = frozenset(["if", "unless", "once", "when", "whenever", "until", "provided"])
_OWN = re.compile(
    r"\b(?:choose|compare|consider|decide|describe|explain|judge|pick|prefer|rank|recommend|rephrase|rewrite"
    r"|sum|summari[sz]e|tell|think|word)\b",
    re.IGNORECASE,
)
_REFERS = re.compile(
    r"\b(?:it|its|it's|them|they|their|that|this|these|those|there|both|one|he|she|him|her|his|the (?:result"
    r"|results|outcome|same|whole|lot)|all of (?:it|that|them))\b",
    re.IGNORECASE,
)
_STOP = re.compile(
    r"(?<!\s)\s*(?:[,;:.!?(—–]|\s(?:on|in|from|to|into|with|at|by|for|according|using|via|through|that|which|who|whose|of"
    r"|about|if|when|once|and|or|so|until)\b)",
    re.IGNORECASE,
)
_VERB = re.compile(r"\S+\s*(?:(?:up|down|out|off|in|on|over|back|away|through)\s+)?")  # the first word
_MOST_CONTEXT, _MOST_WORDS = 160, 6


class LocalDecomposer:
    """Cuts a task into steps by the labels of its words.

    With hints, other likely numbers of steps are tried, and the one is taken whose steps are served best:
    what one row serves becomes one step, what two rows serve becomes two. A task in another script than Latin
    is cut into its sentences, since the model has only seen English; its certainty is 0.

    Args:
        model: Reads the task; None: the packaged one.
        most: The largest number of steps.
        exactly: The number of steps, if it is known, which comes before `most`.
    """

    def __init__(self, model: TaskModel | None = None, *, most: int = 8, exactly: int | None = None) -> None:
        self.model = model or packaged_model()
        self._most, self._exactly = max(most, exactly or 0), exactly

    @property
    def name(self) -> str:
        """The name that a plan tells."""
        return "local"

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the draft of a task, as `Decomposer` says."""
        if not _is_latin(task):
            return _by_sentences(task, self._exactly or self._most)
        reading = self.model.read(task)
        found = counted(self.model.labels(reading), self.model.moves, self._most + BEYOND)
        if self._exactly is not None:
            return drafted(reading, found, found.nearest(self._exactly))
        likeliest = found.likeliest()
        if hints is None:
            return drafted(reading, found, likeliest, self._most)
        counts = [likeliest, *(n for n, share in enumerate(found.shares.tolist()) if share >= LEAST)]
        tried = {n: drafted(reading, found, n, self._most) for n in counts}
        return tried[chosen_count(tried, hints, matcher)]


def drafted(reading: TaskReading, found: CountedLabels, count: int, most: int | None = None) -> Draft:
    """Return the draft with so many steps, of which the first `most` are kept."""
    task, every = reading.task, list(_steps(reading, found.labels(count)))
    spans, beyond = every[:most], [span for own in every[len(every[:most]) :] for span in own]
    steps = tuple(DraftStep(filled(task, spans, k), own, words_of(task, own)) for k, own in enumerate(spans))
    left = sorted(_left_out(task, spans, beyond), key=lambda part: part.span)
    return Draft(steps, tuple(left), float(found.shares[count]))


def _steps(reading: TaskReading, labels: Sequence[int]) -> Iterator[tuple[Span, ...]]:
    held: list[list[Span]] = []
    before: Span | None = None  # a word right before that tells a condition, and was left out
    for word, label in zip(reading.words, labels, strict=True):
        if label == BEGIN:
            held.append([word] if before is None else [before, word])
        elif label == INSIDE:
            held[-1].append(word)
        conditional = reading.task[slice(*word)].lower() in _CONDITIONAL
        before = word if label == OUT and conditional else None
    for words in held:
        if spans := _joined(reading.task, words):
            yield spans


def _joined(task: str, words: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans of words, near ones in one, without signs at either end."""
    spans: list[Span] = []
    for start, end in words:
        if spans and start - spans[-1][1] <= _GAP:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return tuple(span for each in spans if (span := _stripped(task, *each)))


def _stripped(task: str, start: int, end: int) -> Span | None:
    while start < end and task[start] in _SIGNS:
        start += 1
    while end > start and task[end - 1] in _SIGNS:
        end -= 1
    return (start, end) if start < end else None


def _left_out(task: str, steps: Sequence[Sequence[Span]], beyond: Sequence[Span]) -> Iterator[LeftOut]:
    """Yield the spans of steps beyond what is allowed, and the parts that are own work.

    What else stands in no step is told by `compose.left_out`.
    """
    yield from (LeftOut(task[slice(*span)], span, "beyond-max-steps") for span in beyond)
    at = 0
    for start, end in [*sorted([*(span for own in steps for span in own), *beyond]), (len(task), len(task))]:
        span = _stripped(task, at, start)
        if span and reason_of(task[slice(*span)]) != CONTEXT:
            yield LeftOut(task[slice(*span)], span, "own-work")
        at = max(at, end)


def reason_of(text: str) -> str:
    """Return why a part of a task is left out."""
    return "own-work" if _OWN.search(text) else CONTEXT


def _is_latin(task: str) -> bool:
    letters = sum(map(str.isalpha, task))
    return len(_LATIN.findall(task)) > _LATIN_SHARE * letters


def _by_sentences(task: str, most: int) -> Draft:
    begins: list[list[Span]] = []
    for clause in clauses(task):
        if begins and clause.join not in ("start", "sentence"):
            begins[-1].append((clause.start, clause.end))
        else:
            begins.append([(clause.start, clause.end)])
    spans = [(own[0][0], own[-1][1]) for own in begins]
    steps = tuple(DraftStep(words_of(task, [span]), (span,)) for span in spans[:most])
    rest = tuple(LeftOut(words_of(task, [span]), span, "beyond-max-steps") for span in spans[most:])
    return Draft(steps, rest, certainty=0.0)


def filled(task: str, steps: Sequence[Sequence[Span]], number: int) -> str:
    """Return a step's text; where it refers back, with what it most likely refers to in brackets.

    That is the part of the task right before the step that stands in no step, else the thing that the step
    before is about.
    """
    spans = steps[number]
    text = words_of(task, spans)
    if not _REFERS.search(text):
        return text
    meant = _context(task, steps, number) or (_thing(task, steps[number - 1]) if number else "")
    return f"{text} ({meant})" if meant else text


def _context(task: str, steps: Sequence[Sequence[Span]], number: int) -> str:
    words = " ".join(leads(task, steps[: number + 1])[-1].split()).strip(" ,;:.!?-–—")
    return words if len(words.split()) > 2 and len(words) <= _MOST_CONTEXT else ""  # fewer only join


def _thing(task: str, spans: Sequence[Span]) -> str:
    """Return what a step is about: the words after its verb, up to the first that only relates them."""
    text = " ".join(task[spans[0][0] : spans[0][1]].split())
    rest = _VERB.sub("", text, count=1)
    stop = _STOP.search(f" {rest}")
    words = rest[: max(stop.start() - 1, 0)] if stop else rest
    return " ".join(words.split()[:_MOST_WORDS])
