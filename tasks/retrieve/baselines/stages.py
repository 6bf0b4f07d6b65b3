"""Stages of a retrieval, each of which keeps no more skills than the one before (SkillFlow, section 3)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.errors import WrongInput
from tasks.retrieve.routing.skill import Skill

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class StageRanking:
    """The skills that a stage kept for a task, best first, and its own time; without a limit `k` is None.

    `score` is that of the first skill, and `fit` another number for how well it fits, if there are such;
    `scores` are those of all skills that a stage kept.
    """

    stage: str
    doc_ids: Sequence[str]
    milliseconds: float
    k: int | None = None
    score: float | None = None
    fit: float | None = None
    scores: Sequence[float] = ()


class Narrowed(list[int]):
    """Positions of the skills that a stage kept, best first, and a score for each."""

    def __init__(self, places: Iterable[int], scores: Iterable[float]) -> None:
        super().__init__(map(int, places))
        self.scores = tuple(map(float, scores))


class Stage(Protocol):
    """Keeps the skills that fit a task best."""

    @property
    def name(self) -> str:
        """The name of the stage in reports."""

    @property
    def k(self) -> int:
        """The most skills that it keeps."""

    def narrow(self, task: str, among: Sequence[int]) -> list[int]:
        """Return positions of the skills kept, best first, of those that the stage before kept.

        A stage that scores them returns them as `Narrowed`.
        """


class Staged:
    """Runs stages one after another; `clock` returns seconds.

    Raises `WrongInput` if there is no stage, or one keeps more than the stage before it.
    """

    def __init__(
        self, skills: Sequence[Skill], stages: Sequence[Stage], *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        sizes = [stage.k for stage in stages]
        if not sizes or sizes != sorted(sizes, reverse=True) or min(sizes) < 1:
            listed = ", ".join(f"{stage.name} {stage.k}" for stage in stages) or "none"
            raise WrongInput(f"stages keep ever fewer skills, at least one; given are: {listed}")
        self._skills, self._stages, self._clock = skills, stages, clock

    def run(self, task: str) -> list[StageRanking]:
        """Return what each stage kept; the last ranking is the answer.

        Raises `WrongInput` if the task is blank.
        """
        if not task.strip():
            raise WrongInput("the task is blank: say what is to be done")
        among: Sequence[int] = range(len(self._skills))
        found = []
        for stage in self._stages:
            began = self._clock()
            among = stage.narrow(task, among)
            took = 1000 * (self._clock() - began)
            ids = [self._skills[i].doc_id for i in among]
            scores = among.scores if isinstance(among, Narrowed) else ()
            found.append(StageRanking(stage.name, ids, took, stage.k, scores=scores))
        return found


RANK_CONSTANT = 60  # k of reciprocal rank fusion


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]]) -> list[tuple[str, float]]:
    """Merge rankings by the sum of `1 / (60 + rank)` over those that contain an id, ranks from 1.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009. An id counts once per ranking, at its first rank. The highest score comes first,
    equal scores in ascending order of id.
    """
    scores: defaultdict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, doc_id in enumerate(dict.fromkeys(ranking), start=1):
            scores[doc_id] += 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
