"""The local decomposer: labels the words of a task by the task model, without download or LLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tasks.retrieve.compose.decompose.chain import BEGIN, INSIDE, CountedLabels, counted
from tasks.retrieve.compose.decompose.draft import Draft, DraftStep, LeftOut, Span, words_of
from tasks.retrieve.compose.decompose.feedback import chosen_count
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.references import filled
from tasks.retrieve.compose.decompose.task_model import TaskModel, TaskReading, packaged_model

_LEAST = 0.02  # share of a number of steps under which it is not tried
_GAP = 12  # characters between parts of a step that are taken as one: a comma, and a word that was left out
_SIGNS = " \t\r\n,;:.!?…。！？、，；-–—→>()[]"
# Words that join steps and say nothing by themselves.
_JOINING_WORDS = """
    a afterwards also an and as but by finally first for in into it last lastly next of on or please plus
    second so that the then third to too well with
"""
_JOINING = frozenset(_JOINING_WORDS.split())
_OWN = re.compile(
    r"\b(?:choose|compare|consider|decide|describe|explain|judge|pick|prefer|rank|recommend|rephrase|rewrite"
    r"|sum|summari[sz]e|tell|think|word)\b",
    re.IGNORECASE,
)


class LocalDecomposer:
    """Cuts a task into steps by the labels of its words.

    With hints, other likely numbers of steps are tried, and the one is taken whose steps are served best:
    clauses that one row serves become one step, one that two rows serve becomes two.

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
        reading = self.model.read(task)
        if not reading.words:
            return Draft((), ())
        found = counted(self.model.labels(reading), self.model.moves, self._most)
        if self._exactly is not None:
            return drafted(reading, found, found.nearest(self._exactly))
        if hints is None:
            return drafted(reading, found, found.likeliest())
        tried = {n: drafted(reading, found, n) for n, p in enumerate(found.shares.tolist()) if p >= _LEAST}
        return tried[chosen_count(tried, hints, matcher)]


def drafted(reading: TaskReading, found: CountedLabels, count: int) -> Draft:
    """Return the draft with so many steps."""
    held: list[list[Span]] = []
    labels = found.labels(count)
    for word, label in zip(reading.words, labels, strict=True):
        if label == BEGIN:
            held.append([word])
        elif label == INSIDE:
            held[-1].append(word)
    spans = [step for words in held if (step := _joined(reading.task, words))]
    steps = tuple(
        DraftStep(filled(reading.task, spans, k), own, words_of(reading.task, own))
        for k, own in enumerate(spans)
    )
    return Draft(steps, tuple(left_out(reading.task, spans)), float(found.shares[count]))


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


def left_out(task: str, steps: Sequence[Sequence[Span]]) -> Iterator[LeftOut]:
    """Yield the parts of a task that no step holds, but for signs and joining words."""
    held, at = sorted(span for spans in steps for span in spans), 0
    for start, end in [*held, (len(task), len(task))]:
        span = _stripped(task, at, start) if start > at else None
        if span and not _JOINING.issuperset(re.findall(r"\w+", task[slice(*span)].lower())):
            text = task[slice(*span)]
            yield LeftOut(text, span, reason_of(text))
        at = max(at, end)


def reason_of(text: str) -> str:
    """Return why a part of a task is left out."""
    return "own-work" if _OWN.search(text) else "context"
