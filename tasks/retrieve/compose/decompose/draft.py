"""Drafts: the steps into which a decomposer takes a task apart, and what it left out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep, Span


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
