"""Pools: the skills among which a bench's tasks are routed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from storage.errors import WrongInput
from tasks.evaluate.routing.bench import RoutingBench

POOL_NAMES = MappingProxyType({
    "all": "all that are given",
    "bench": "the bench's own alone",
    "repository": "those of a task's repository alone",
})  # fmt: skip
POOLS = tuple(POOL_NAMES)


class PoolPart(NamedTuple):
    """A bench, and the skills among which its tasks are routed."""

    bench: RoutingBench
    skills: pl.DataFrame


def parts_of(pool: str, bench: RoutingBench, skills: pl.DataFrame, own: Collection[str]) -> list[PoolPart]:
    """Return the parts of one of `POOLS`: one, or for `repository` one for each repository.

    Args:
        pool: One of `POOLS`.
        bench: Its tasks and negatives name their `repo` if they are routed within it.
        skills: All skills by the columns of `data.SKILLS`; the ids of a repository's begin with its name.
        own: The ids of the skills that the bench comes with.

    Raises:
        WrongInput: A task's repository is not known, or one has no skills or lacks a skill that a task needs.
    """
    if pool == "all":
        return [PoolPart(bench, skills)]
    if pool == "bench":
        return [PoolPart(bench, skills.filter(pl.col("doc_id").is_in(list(own))))]
    return [_of_repository(repo, bench, skills) for repo in _repositories(bench)]


def _repositories(bench: RoutingBench) -> Sequence[str]:
    """Return the repositories of a bench's tasks and negatives, in order."""
    asked = (*bench.tasks, *bench.negatives)
    for task in asked:
        if task.repo is None:
            msg = f"query {task.query_id!r} names no `repo`: add it, or leave --pool repository out"
            raise WrongInput(msg)
    return list(dict.fromkeys(str(task.repo) for task in asked))


def id_starts(repo: str) -> tuple[str, str]:
    """Return what the ids of a repository's skills begin with, in lower case: they have one of two forms."""
    return f"{repo.lower()}/", "--".join(repo.lower().split("/")) + "--"


def _of_repository(repo: str, bench: RoutingBench, skills: pl.DataFrame) -> PoolPart:
    ids = pl.col("doc_id").str.to_lowercase()
    inside = skills.filter(pl.any_horizontal(ids.str.starts_with(start) for start in id_starts(repo)))
    tasks = [task for task in bench.tasks if task.repo == repo]
    asked, known = {task.query_id for task in tasks}, set(inside["doc_id"])
    qrels = [qrel for qrel in bench.qrels if qrel.query_id in asked]
    for query_id, doc_id, relevance in qrels:
        if relevance > 0 and doc_id not in known:
            msg = f"query {query_id!r} needs {doc_id!r}, which is not in its `repo` {repo!r}: mend either"
            raise WrongInput(msg)
    if inside.is_empty():
        msg = f"no id of a skill begins with the `repo` {repo!r}: mend it, or leave --pool repository out"
        raise WrongInput(msg)
    negatives = [task for task in bench.negatives if task.repo == repo]
    return PoolPart(replace(bench, tasks=tasks, qrels=qrels, negatives=negatives), inside)
