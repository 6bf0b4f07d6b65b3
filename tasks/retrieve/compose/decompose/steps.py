"""The steps of a draft: what each says, and where the task says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    @property
    def rewritten(self) -> bool:
        """Whether the text is in other words than the task's."""
        return self.said is not None and self.said not in self.text


def words_of(task: str, spans: Sequence[Span]) -> str:
    """Return the words of a task at some spans."""
    return " … ".join(" ".join(task[start:end].split()) for start, end in spans)


def leads(task: str, steps: Sequence[Sequence[Span]]) -> list[str]:
    """Return what stands right before each step and in no other; steps in the order the task begins them."""
    found, end = [], 0
    for spans in steps:
        found.append(task[end : spans[0][0]])
        end = max(end, spans[-1][1])
    return found
