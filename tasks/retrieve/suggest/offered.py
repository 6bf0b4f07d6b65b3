"""What can be offered in one domain: skills with vectors of their descriptions, support, and moments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tasks.induce.recurrence import Moment
from tasks.induce.skills.actions import Body
from tasks.induce.skills.wording import described
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.memory import Memory

Encode = Callable[[Sequence[str]], Vectors]


class Offered:
    """The skills of a domain by their number in `memory`, as they are learned, trajectory by trajectory.

    Args:
        encode: Returns unit vectors of texts, shape `(texts, 384)`.
    """

    def __init__(self, encode: Encode) -> None:
        self.memory = Memory()
        self._encode = encode
        self._tasks: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._pages: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._vectors: dict[str, Vectors] = {}

    @property
    def skills(self) -> list[Body]:
        """The skills."""
        return self.memory.skills

    def learn(self, moments: Iterable[Moment], vector: Vectors) -> None:
        """Add the moments of one trajectory; `vector` is that of its task."""
        known, before = list(moments), len(self.memory.pairs[0])
        self.memory.add(known, vector)
        first = len(self.memory) - len(known)
        of_moment, of_skill = self.memory.pairs
        for place, skill in zip(of_moment[before:].tolist(), of_skill[before:].tolist(), strict=True):
            moment = known[place - first]
            self._tasks[skill][moment.task_id] += 1
            self._pages[skill][moment.page] += 1

    def description(self, skill: int) -> str:
        """Return what a skill does, on the page where it was done most often."""
        pages = self._pages[skill]
        return described(self.skills[skill], min(pages, key=lambda page: (-pages[page], page)))

    def vectors(self) -> Vectors:
        """Return the vectors of all descriptions, shape `(skills, 384)`."""
        return np.stack(self.encoded([self.description(skill) for skill in range(len(self.skills))]))

    def encoded(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the vectors of texts; each is encoded once."""
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self._vectors |= dict(zip(new, self._encode(new), strict=True))
        return [self._vectors[text] for text in texts]

    def support(self, without: str = "") -> list[int]:
        """Return how many tasks did each skill, one of them left out."""
        return [
            len(self._tasks[skill]) - (without in self._tasks[skill]) for skill in range(len(self.skills))
        ]
