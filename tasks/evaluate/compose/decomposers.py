"""Decomposers of methods: one that is told the steps, and the local one without a thing that it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from tasks.models.protocols import Encoder
from tasks.retrieve.compose.drafts import Draft, DraftStep, words_of
from tasks.retrieve.compose.local import LocalDecomposer
from tasks.retrieve.compose.matches import Matcher

_ASLANT = 0.2  # taken off a cosine between opposite ends: what is done first is mostly told first


@dataclass(frozen=True, slots=True)
class ToldSteps:
    """A decomposer that is told the steps, in an order in which they can be done."""

    texts: tuple[str, ...]
    encoder: Encoder
    name: str = "told"

    def decompose(self, task: str, hints: Sequence[int] | None, matcher: Matcher) -> Draft:
        """Return the steps that were told, each where the local decomposer finds one that is most like it."""
        del hints
        found = LocalDecomposer(exactly=len(self.texts)).decompose(task, None, matcher).steps
        whole = DraftStep(task, ((0, max(len(task), 1)),))
        places = [*found, *[whole] * (len(self.texts) - len(found))]
        own, others = linear_sum_assignment(self._alike([step.text for step in places]), maximize=True)
        spans = {int(a): places[int(b)].spans for a, b in zip(own, others, strict=True)}
        steps = (DraftStep(text, spans[k], words_of(task, spans[k])) for k, text in enumerate(self.texts))
        return Draft(tuple(steps), in_order=True)

    def _alike(self, others: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return how alike told texts and others are, shape `(told, others)`."""
        vectors = self.encoder.encode([*self.texts, *others]).astype(np.float64)
        own, found = vectors[: len(self.texts)], vectors[len(self.texts) :]
        return np.asarray(own @ found.T - _ASLANT * np.abs(np.subtract.outer(_places(own), _places(found))))


def _places(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (np.arange(len(rows)) + 0.5) / max(len(rows), 1)


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
