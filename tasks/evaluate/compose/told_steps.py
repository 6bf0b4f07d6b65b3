"""Told steps: a decomposer that is told what the steps are, and finds where the task says each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from tasks.models.protocols import Encoder
from tasks.retrieve.compose.decompose.draft import Draft
from tasks.retrieve.compose.decompose.local import LocalDecomposer
from tasks.retrieve.compose.decompose.matches import Matcher
from tasks.retrieve.compose.decompose.steps import DraftStep

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
        alike = self._alike([step.text for step in places])
        of_text = dict(zip(*map(np.ndarray.tolist, linear_sum_assignment(alike, maximize=True)), strict=True))
        steps = (DraftStep(text, places[of_text[k]].spans) for k, text in enumerate(self.texts))
        return Draft(tuple(steps), in_order=True)

    def _alike(self, others: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        vectors = self.encoder.encode([*self.texts, *others])
        own, found = vectors[: len(self.texts)], vectors[len(self.texts) :]
        place = (np.arange(len(others)) + 0.5) / max(len(others), 1)
        return np.asarray(own @ found.T - _ASLANT * np.abs(np.subtract.outer(place, place)), dtype=np.float64)
