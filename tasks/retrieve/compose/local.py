"""The local decomposer: cuts a task by the labels of its words, which the task model scores.

A linear-chain model labels words: each begins a step, continues one, or is left out (Lafferty, McCallum and
Pereira, "Conditional random fields", ICML 2001, equation 1), decoded for the number of steps first: each
count has a probability, and best labels of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.retrieve.compose.clauses import CONTEXT, clauses, joined, reason_of
from tasks.retrieve.compose.drafts import Draft, DraftStep, LeftOut, Span, leads, words_of
from tasks.retrieve.compose.ranking import Matcher
from tasks.retrieve.compose.rounds import chosen_count
from tasks.retrieve.compose.task_model import TaskModel, TaskReading, packaged_model

Scores = npt.NDArray[np.float64]
BEGIN, INSIDE, OUT = 0, 1, 2
LABELS = 3
_NEVER = -1e9


@dataclass(frozen=True, slots=True)
class CountedLabels:
    """The labels of a task's words by their number of steps.

    `shares`, shape `(most + 1,)`, are the counts' probabilities; `_best`, `(most + 1, 3)`, and `_back`,
    `(words, most + 1, 3)`, are what Viterbi's algorithm found for each count and last label.
    """

    shares: Scores
    _best: Scores
    _back: npt.NDArray[np.int64]

    def likeliest(self) -> int:
        """Return the number of steps that is most probable; of equals the smallest."""
        return int(np.argmax(self.shares))

    def nearest(self, wanted: int) -> int:
        """Return the count nearest to the one wanted for which there are labels."""
        possible = np.flatnonzero(self._best.max(axis=1) > _NEVER / 2)
        return int(possible[np.argmin(np.abs(possible - wanted))])

    def labels(self, count: int) -> tuple[int, ...]:
        """Return the best labels with so many steps; none of no words."""
        if not len(self._back):
            return ()
        label = int(np.argmax(self._best[count]))
        found = [label]
        for back in self._back[:0:-1]:
            before = int(back[count, label])
            count -= int(label == BEGIN)
            label = before
            found.append(label)
        return tuple(found[::-1])


def counted(scores: Scores, moves: Scores, most: int) -> CountedLabels:
    """Return the labels of words for each number of steps.

    `scores`: of each word's labels, shape `(words, 3)`. `moves`: of a label (row) before another (column),
    shape `(3, 3)`.
    """
    if not len(scores):
        return CountedLabels(
            np.eye(1, most + 1)[0], np.zeros((most + 1, LABELS)), np.zeros((0, 1, 1), np.int64)
        )
    sums = np.full((most + 1, LABELS), _NEVER)
    sums[0, OUT] = scores[0, OUT]
    if most:
        sums[1, BEGIN] = scores[0, BEGIN]
    best = sums.copy()
    back = np.zeros((len(scores), most + 1, LABELS), dtype=np.int64)
    for i in range(1, len(scores)):
        chosen = (best[:, :, None] + moves).argmax(axis=1)
        back[i] = chosen
        back[i, 1:, BEGIN] = chosen[:-1, BEGIN]
        sums = _onward(sums, moves, scores[i], lambda into: np.logaddexp.reduce(into, axis=1))
        best = _onward(best, moves, scores[i], lambda into: into.max(axis=1))
    totals = np.logaddexp.reduce(sums, axis=1)
    return CountedLabels(np.exp(totals - np.logaddexp.reduce(totals)), best, back)


def _onward(before: Scores, moves: Scores, own: Scores, combined: Callable[[Scores], Scores]) -> Scores:
    into = combined(before[:, :, None] + moves)
    after = np.full_like(before, _NEVER)
    after[1:, BEGIN] = into[:-1, BEGIN]
    after[1:, INSIDE] = into[1:, INSIDE]  # nothing continues a step before one has begun
    after[:, OUT] = into[:, OUT]
    return np.maximum(after + own, _NEVER)


LEAST = 0.02  # share of a number of steps under which it is not tried
BEYOND = 4  # steps that are looked for beyond those allowed, to say what is left out
_SIGNS = " \t\r\n,;:.!?…。！？、，；-–—→>()[]"
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_LATIN_SHARE = 0.5  # of the letters of a task, from which the model is asked
_CONDITIONAL = frozenset(["if", "unless", "once", "when", "whenever", "until", "provided"])
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
    is cut into its sentences, since the model has only seen English; its certainty is 0. `model` reads the
    task; None: the packaged one. `exactly` is the number of steps, if it is known, which comes before `most`.
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
        if spans := tuple(span for each in joined(words) if (span := _stripped(reading.task, *each))):
            yield spans


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
