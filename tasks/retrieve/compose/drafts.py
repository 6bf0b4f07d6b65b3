"""Drafts of a task: the steps that it is cut into, where it tells them, and what is left out of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Span = tuple[int, int]
_TOLD = 160  # characters of a part that was not read, which may be a megabyte
# What may stand between two parts without being one: signs, and words that say how a part follows.
_JOINING = re.compile(
    r"(?:[\W_]|\b(?:a|also|afterwards|and|as|but|by|finally|first|for|in|into|last|lastly|next|nor|of|on|or"
    r"|please|plus|second|so|that|the|then|third|to|too|well|which|with)\b)*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class DraftStep:
    """A step: a text that can be searched with alone, and where the task says it, as character spans.

    `said` is what the task says there, if the text is in other words.
    """

    text: str
    spans: tuple[Span, ...]
    said: str | None = None

    @property
    def words(self) -> str:
        """The task's own words: they may tell a condition that another wording lost."""
        return self.text if self.said is None else self.said

    @property
    def rewritten(self) -> bool:
        """Whether the text is in other words than the task's."""
        return self.said is not None and self.said not in self.text


def words_of(task: str, spans: Sequence[Span]) -> str:
    """Return the words of a task at some spans."""
    return " … ".join(" ".join(task[start:end].split()) for start, end in spans)


def told_order(steps: Sequence[DraftStep]) -> list[int]:
    """Return the places of steps in the order in which the task begins them."""
    return sorted(range(len(steps)), key=lambda k: (steps[k].spans[0], k))


def leads(task: str, steps: Sequence[Sequence[Span]]) -> list[str]:
    """Return what stands right before each step and in no other; steps in the order the task begins them."""
    found, end = [], 0
    for spans in steps:
        found.append(task[end : spans[0][0]])
        end = max(end, spans[-1][1])
    return found


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of the task that no step holds, and why.

    `context` asks for nothing, `own-work` needs nothing served, `beyond-max-steps` would be a step if more
    were allowed, and `too-long` was not read.
    """

    text: str
    span: Span
    reason: str


@dataclass(frozen=True, slots=True)
class Draft:
    """The steps of a task, in the order in which it tells them, and the probability of their number.

    With `in_order` they stand in an order in which they can be done, as those of a language model do.
    """

    steps: tuple[DraftStep, ...]
    left_out: tuple[LeftOut, ...] = ()
    certainty: float = 1.0
    in_order: bool = False


def left_out(task: str, draft: Draft, read: int) -> list[dict[str, Any]]:
    """Return what stands in no step of a draft, in the order of the task, as a plan tells it.

    Beside what the decomposer left out these are `too-long`: what stands after the characters that were read,
    and `no-words`: signs and symbols alone. Where there is no step, `context` is `no-request`. `draft` is
    what its first `read` characters became. `read` is the number of characters that were read.
    """
    told = [*draft.left_out, *_between(task[:read], draft)]
    if task[read:].strip():
        told.append(LeftOut(task[read:], (read, len(task)), "too-long"))
    if not draft.steps:
        told = [LeftOut(p.text, p.span, "no-request") if p.reason == "context" else p for p in told]
    parts = _joined(task, sorted(told, key=lambda part: part.span))
    return [{"text": _text(part), "span": list(part.span), "reason": part.reason} for part in parts]


def _between(task: str, draft: Draft) -> Iterator[LeftOut]:
    """Yield the parts that the decomposer put nowhere, without those that only join others."""
    spans = [span for step in draft.steps for span in step.spans] + [part.span for part in draft.left_out]
    end = 0
    for start, last in [*sorted(spans), (len(task), len(task))]:
        part = task[end:start]
        if part.strip() and (
            not _JOINING.fullmatch(part) or any(unicodedata.category(c) == "So" for c in part)
        ):
            yield _stripped(task, (end, start))
        end = max(end, last)


def _stripped(task: str, span: Span) -> LeftOut:
    part = task[slice(*span)]
    start = span[0] + len(part) - len(part.lstrip())
    text = part.strip()
    reason = "context" if any(map(str.isalnum, text)) else "no-words"
    return LeftOut(text, (start, start + len(text)), reason)


def _joined(task: str, parts: Sequence[LeftOut]) -> list[LeftOut]:
    """Return parts; those that follow each other and were not read are one."""
    kept: list[LeftOut] = []
    for part in parts:
        before = kept[-1] if kept else None
        if before and before.reason == part.reason == "too-long":
            span = (before.span[0], part.span[1])
            kept[-1] = LeftOut(task[slice(*span)], span, "too-long")
        else:
            kept.append(part)
    return kept


def _text(part: LeftOut) -> str:
    return part.text[:_TOLD] if part.reason == "too-long" else part.text
