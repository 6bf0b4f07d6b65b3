"""What can be offered in one domain: skills with vectors of their descriptions, support, and moments."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tasks.induce.skills.actions import Body
from tasks.induce.skills.wording import described, page_named
from tasks.induce.windows.recurrence import Moment
from tasks.models.protocols import Vectors
from tasks.retrieve.suggest.memory import Memory, Places

_TasksByPage = defaultdict[str, set[str]]
Encode = Callable[[Sequence[str]], Vectors]


class Offered:
    """The skills of a domain by their number in `memory`, as they are learned, trajectory by trajectory.

    Args:
        encode: Returns unit vectors of texts, shape `(texts, 384)`.
        descriptions: Of skills that are described already.
        vectors: Of texts that are encoded already.
    """

    def __init__(
        self,
        encode: Encode,
        descriptions: Mapping[Body, str] | None = None,
        vectors: Mapping[str, Vectors] | None = None,
    ) -> None:
        self.memory = Memory()
        self._encode, self._descriptions = encode, descriptions or {}
        self._supports = array("q")
        self._skills_of: defaultdict[str, set[int]] = defaultdict(set)  # by task
        self._pages: defaultdict[int, _TasksByPage] = defaultdict(lambda: defaultdict(set))
        self._every_page: _TasksByPage = defaultdict(set)
        self._vectors = dict(vectors or {})
        self._matrix: Vectors | None = None  # of all descriptions, until more is learned

    @property
    def skills(self) -> list[Body]:
        """The skills."""
        return self.memory.skills

    def learn(self, moments: Iterable[Moment], vector: Vectors) -> None:
        """Add the moments of one trajectory; `vector` is that of its task."""
        known, self._matrix = list(moments), None
        self.memory.add(known, vector)
        self._supports.extend([0] * (len(self.skills) - len(self._supports)))
        for moment in known:
            for body in dict.fromkeys(moment.bodies):
                skill, own = self.memory.number_of(body), self._skills_of[moment.task_id]
                self._supports[skill] += skill not in own
                own.add(skill)
                self._pages[skill][moment.page].add(moment.task_id)
                self._every_page[moment.page].add(moment.task_id)

    def description(self, skill: int) -> str:
        """Return what a skill does: as it was given, else by its actions and the page of most tasks."""
        body = self.skills[skill]
        given = self._descriptions.get(body)
        return given or described(body, page_named(self._pages[skill], self._every_page))

    def vectors(self) -> Vectors:
        """Return the vectors of all descriptions, shape `(skills, 384)`."""
        if self._matrix is None:
            texts = [self.description(skill) for skill in range(len(self.skills))]
            self._matrix = np.stack(self.encoded(texts))
        return self._matrix

    def encoded(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the vectors of texts; each is encoded once."""
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self._vectors |= dict(zip(new, self._encode(new), strict=True))
        return [self._vectors[text] for text in texts]

    def support(self, without: str = "") -> Places:
        """Return how many tasks did each skill, one of them left out, shape `(skills,)`."""
        found = np.array(self._supports, dtype=np.int64)
        found[list(self._skills_of.get(without, ()))] -= 1
        return found
