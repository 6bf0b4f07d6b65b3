"""Ablations of decomposing: the local decomposer without one of the things that it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.local import LocalDecomposer
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep


@dataclass(frozen=True, slots=True)
class Ablated:
    """The local decomposer, whose drafts are changed."""

    change: Callable[[Draft], Draft]
    name: str = "local"

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the changed draft of a task, as `Decomposer` says."""
        return self.change(LocalDecomposer().decompose(task, hints, matcher))


def without_references(draft: Draft) -> Draft:
    """Return a draft whose steps say "it" where the task does."""
    return replace(draft, steps=tuple(replace(step, text=step.words) for step in draft.steps))


def with_own_work(draft: Draft) -> Draft:
    """Return a draft in which what the agent does by itself is a step too."""
    own = [part for part in draft.left_out if part.reason == "own-work"]
    steps = [*draft.steps, *(DraftStep(part.text, (part.span,)) for part in own)]
    rest = tuple(part for part in draft.left_out if part not in own)
    return replace(draft, steps=tuple(sorted(steps, key=lambda step: step.spans)), left_out=rest)
