"""Searching what is served by another method than the default, or with a reranker after either."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.commands.console import say_aside
from flows.commands.routing.methods import (
    JUDGE,
    Methods,
    RoutingModels,
    require_methods,
    require_names,
    reranking,
)
from flows.commands.routing.settings import SkillRouterSettings, base_of
from flows.settings import Settings, asked_llm, load
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.routing.baselines import BASELINES
from tasks.evaluate.routing.bench import RoutingMethod
from tasks.models.with_torch.device import device_of
from tasks.retrieve.baselines.stages import Stage
from tasks.retrieve.routing.router import Ranked
from tasks.retrieve.routing.search import Searcher, SkillRanker
from tasks.retrieve.routing.skill import Skill

DEFAULT = "default"
SEARCHING = (DEFAULT, *BASELINES, "skillflow", "skillrouter")
_OWN = "skillrouter"  # the reranker of the settings


@contextmanager
def other_ranker(
    root: Root, settings: Settings, *, method: str = DEFAULT, reranker: str | None = None
) -> Iterator[SkillRanker]:
    """Yield what ranks by a method of `SEARCHING`, then by a reranker if one is named.

    A reranker is `skillrouter` (that of the settings), `judge` (the LLM that is set up), or a model. Raises
    `WrongInput` if the method is not known, or its settings, library or LLM cannot be used.
    """
    require_names([method])
    if base_of(method) not in SEARCHING:
        raise WrongInput(f"--method {method} ranks on benches alone: choose one of {', '.join(SEARCHING)}")
    require_methods([method], settings, root)
    router = None if reranker is None else _router(reranker, settings)
    with ExitStack() as held:
        models = RoutingModels(root, settings, held)
        yield _Ranking(models, method, router)
        if (asked := models.llm_report()) and (reasons := asked["fallbacks"]):
            told = ", ".join(f"{count} x {reason}" for reason, count in reasons.items())
            say_aside(f"the language model gave no answer ({told}): its step was left out there")


def _router(reranker: str, settings: Settings) -> SkillRouterSettings:
    router = load(SkillRouterSettings) if reranker == _OWN else SkillRouterSettings(reranker=reranker)
    if router.reranker == JUDGE:
        asked_llm(settings)
    else:
        device_of(settings.device)
    return router


class _Ranking:
    """Ranks by a method, made once for each set of skills that may be found, and then by a reranker."""

    def __init__(self, models: RoutingModels, method: str, router: SkillRouterSettings | None) -> None:
        self._models, self._method, self._router = models, method, router
        self._made: tuple[Searcher, bytes, RoutingMethod] | None = None

    def __call__(
        self, searcher: Searcher, query: str, k: int, allowed: npt.NDArray[np.bool_]
    ) -> list[Ranked]:
        """Return the `k` best of the skills allowed, best first; only the default's have a fit.

        The score of a method of stages is that of the last stage that scores; its parts are all stages'.
        """
        if not allowed.any():
            return []
        if self._router is None:
            return self._candidates(searcher, query, k, allowed)[:k]
        found = self._candidates(searcher, query, max(k, self._router.candidates), allowed)
        first = found[: self._router.candidates]
        skills = searcher.skills(searcher.places_of([one.doc_id for one in first]))
        order = self._rerank(skills).narrow(query, range(len(first)))
        return [*(first[i] for i in order), *found[len(first) :]][:k]

    @functools.cached_property
    def _rerank(self) -> Callable[[Sequence[Skill]], Stage]:
        assert self._router is not None  # noqa: S101 - it is asked for where there is one
        return reranking(self._router, self._models)

    def _candidates(
        self, searcher: Searcher, query: str, depth: int, allowed: npt.NDArray[np.bool_]
    ) -> list[Ranked]:
        if self._method == DEFAULT:
            return searcher.router.rank(query, depth, allowed=allowed)
        stages = self._ready(searcher, allowed)(query, depth)
        by_stage = {stage.stage: dict(zip(stage.doc_ids, stage.scores, strict=False)) for stage in stages}
        found = []
        for doc_id in stages[-1].doc_ids[:depth]:
            parts = {name: scores[doc_id] for name, scores in by_stage.items() if doc_id in scores}
            found.append(Ranked(doc_id, [math.nan, *parts.values()][-1], parts))
        return found

    def _ready(self, searcher: Searcher, allowed: npt.NDArray[np.bool_]) -> RoutingMethod:
        key = allowed.tobytes()
        if self._made is None or self._made[0] is not searcher or self._made[1] != key:
            skills = searcher.skills(np.flatnonzero(allowed).tolist())
            method = Methods(self._models, pl.DataFrame(skills, Skill._fields, orient="row")).method(
                self._method
            )
            self._made = searcher, key, method
        return self._made[2]
