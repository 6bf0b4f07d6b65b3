"""Drafts: the steps into which a decomposer takes a task apart, and what it left out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.retrieve.compose.decompose.matches import Matcher

Span = tuple[int, int]


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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of the task that no step holds, and why: `context`, `own-work` or `beyond-max-steps`."""

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


def words_of(task: str, spans: Sequence[Span]) -> str:
    """Return the words of a task at some spans."""
    return " … ".join(" ".join(task[start:end].split()) for start, end in spans)


class Decomposer(Protocol):
    """Takes a task apart into steps (SkillWeaver, section 4.1)."""

    @property
    def name(self) -> str:
        """The name that a plan tells: `local`, or `llm:` and the model's."""

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the draft of a task.

        Args:
            task: What is asked for.
            hints: Rows of the index that may serve (equation 5); None in the first round.
            matcher: Finds what serves a text.
        """
