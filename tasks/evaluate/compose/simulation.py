"""A simulation of carrying plans out: each step succeeds by chance, with a rate for each category.

After SkillWeaver's appendix I, whose executors were mocks as well: nothing is executed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.evaluate.compose.bench import MethodRun
from tasks.evaluate.compose.measures import PlannedStep, served_pairs

RATES = (0.80, 0.95)  # of success, a category's rate is drawn between them
QUERIES = 30
REPEATS = 1_000


def simulated(run: MethodRun, seed: int, *, queries: int = QUERIES) -> dict[str, Any]:
    """Return how often steps and whole plans succeed in a simulation.

    Args:
        run: Plans of requests; `queries` of them are drawn.
        seed: Draws the requests, the categories' rates, and what succeeds, `REPEATS` times.
        queries: How many requests at most.

    Returns:
        `queries`, `repeats`, `steps` (mean of a plan), `da`; `ses`, the share of steps that succeed, and
        `ccr`, that of requests of which all do, each `[mean, low, high]` over the repeats (95 % of them);
        `ses_right` and `ccr_right` the same where a step succeeds only if its first candidate serves a
        needed step, null where it is not known what serves. A gap never succeeds, and a plan without steps
        does not either.
    """
    random = np.random.default_rng(seed)
    order = sorted(range(len(run.requests)), key=lambda i: run.requests[i].query_id)
    drawn = sorted(random.permutation(order)[:queries].tolist())
    plans = [run.made[i].plan for i in drawn]
    names = sorted({_category(step) for plan in plans for step in plan.steps})
    rate = dict(zip(names, random.uniform(*RATES, size=len(names)), strict=True))
    rates = [0.0 if step.gap else rate[_category(step)] for plan in plans for step in plan.steps]
    owners = np.array([i for i, plan in enumerate(plans) for _ in plan.steps], dtype=np.int64)
    done = random.random((REPEATS, len(rates))) < np.array(rates)
    known = all(run.requests[i].needed.known_servers for i in drawn)
    right = np.concatenate([_right(run, i) for i in drawn]) if known else None
    return {
        "queries": len(drawn), "repeats": REPEATS, "steps": len(rates) / len(drawn),
        "da": float(np.mean([run.values[i]["da"] for i in drawn])),
        **_shares(done, owners, len(drawn), ""),
        **(_shares(done & right, owners, len(drawn), "_right") if right is not None
           else {"ses_right": None, "ccr_right": None}),
    }  # fmt: skip


def _category(step: PlannedStep) -> str:
    return min(step.categories[0], default="") if step.categories else ""


def _right(run: MethodRun, i: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    plan, good = run.made[i].plan, np.zeros(len(run.made[i].plan.steps), dtype=bool)
    good[[a for a, _, ok in served_pairs(plan, run.requests[i].needed, 1) if ok]] = True
    return good


def _shares(done: Any, owners: Any, plans: int, suffix: str) -> dict[str, list[float]]:  # noqa: ANN401
    failed = np.zeros((len(done), plans))
    for plan in range(plans):
        own = owners == plan
        failed[:, plan] = (~done[:, own]).any(axis=1) if own.any() else True
    steps = done.mean(axis=1) if done.shape[1] else np.zeros(len(done))
    return {f"ses{suffix}": _spread(steps), f"ccr{suffix}": _spread(1 - failed.mean(axis=1))}


def _spread(values: Any) -> list[float]:  # noqa: ANN401
    return [float(np.mean(values)), *(float(q) for q in np.quantile(values, (0.025, 0.975)))]
