"""Prefect shells of induction: tasks that keep trajectories and learn the libraries of domains."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.root import Root
from tasks.induce.library.learn import Learning, keep_new, learn, to_learn
from tasks.induce.replay.verify import opened
from tasks.induce.trajectories.read import Format


@task(name="keep-trajectories", cache_policy=NO_CACHE)
def keep_trajectories(root: str, folder: str, form: str, domain: str) -> dict[str, Any]:
    """Keep the trajectories of a folder that are new; return how many there were of each sort."""
    return keep_new(Root(root), [Path(folder)], cast(Format, form), domain)


@task(name="plan-learning", cache_policy=NO_CACHE)
def plan_learning(root: str, how: Learning) -> dict[str, str]:
    """Return the domains whose libraries are to be built anew, each with what it is to be made of."""
    return to_learn(Root(root), how)


@task(name="learn-domain", cache_policy=NO_CACHE, task_run_name="learn-{domain}")
def learn_domain(root: str, domain: str, made_of: str, how: Learning) -> dict[str, Any]:
    """Build the library of one domain; return what came of its windows."""
    with opened(how.verify, how.folder) as replay:
        return learn(Root(root), domain, made_of, replay, how)
