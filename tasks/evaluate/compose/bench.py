"""The bench of compose: methods measured on requests whose steps, servers and dependencies are known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl

from tasks.evaluate.compose.measures import measured
from tasks.evaluate.compose.methods import Asking, MadePlan, PlanMethod
from tasks.evaluate.compose.requests import KnownRequest
from tasks.evaluate.measures.runs import latency, long_table, summarise
from tasks.evaluate.measures.statistics import holm_bonferroni, paired_bootstrap, wilcoxon


@dataclass(frozen=True, slots=True)
class MethodRun:
    """One method's plans of requests, in their order, with the measures and milliseconds of each."""

    requests: Sequence[KnownRequest]
    made: Sequence[MadePlan]
    values: Sequence[dict[str, float]]
    times: Sequence[float]

    def column(self, measure: str) -> list[float]:
        """Return a measure on each request on which it is known, in their order."""
        return [value[measure] for value in self.values if measure in value]

    def measures(self) -> list[str]:
        """Return the measures that are known of some request."""
        return list(dict.fromkeys(name for value in self.values for name in value))

    def among(self, chosen: Collection[str]) -> MethodRun:
        """Return the run on requests of some ids."""
        kept = [i for i, request in enumerate(self.requests) if request.query_id in chosen]
        parts = (self.requests, self.made, self.values, self.times)
        return MethodRun(*([part[i] for i in kept] for part in parts))  # type: ignore[arg-type]


def run_method(
    asking: Asking,
    method: PlanMethod,
    requests: Sequence[KnownRequest],
    step: Callable[[], None] = lambda: None,
    without: Mapping[str, frozenset[str]] | None = None,
) -> MethodRun:
    """Ask a method about each request, after one request that is not timed; `step` is called after each.

    `without` holds, by `query_id`, the ids that a request must not find.
    """
    if requests:
        method(asking, requests[0])
    made, times = [], []
    for request in requests:
        hidden = asking.without(without[request.query_id]) if without else asking
        started = perf_counter()
        made.append(method(hidden, request))
        times.append(1000 * (perf_counter() - started))
        step()
    values = [measured(plan.plan, r.needed) for plan, r in zip(made, requests, strict=True)]
    return MethodRun(requests, made, values, times)


def run_table(runs: Mapping[str, MethodRun]) -> pl.DataFrame:
    """Return the long table of runs by method."""
    rows = [
        {"method": name, "query_id": request.query_id, **values}
        for name, run in runs.items()
        for request, values in zip(run.requests, run.values, strict=True)
    ]
    measures = list(dict.fromkeys(measure for run in runs.values() for measure in run.measures()))
    return long_table("compose", pl.DataFrame(rows, infer_schema_length=None), measures)


def summarise_methods(
    runs: Mapping[str, MethodRun], reworded: Mapping[str, MethodRun], baseline: str
) -> list[dict[str, Any]]:
    """Return a row for each method that was measured.

    A row has `method`, the measures' means, `ci95` (percentile bootstrap over requests, 10,000 resamples),
    `median_ms`, `p95_ms`, `by_difficulty`, `by_tag`, `by_category` (of the steps needed), `tokens` (means of
    the chosen and of all that is served, or null), `paraphrase` (`paraphrase_row`, null without any) and
    `against` (null for the baseline): by measure `compared` with the baseline, `p_adjusted` of both tests by
    Holm over the methods.

    Args:
        runs: Of each method.
        reworded: Of each method on paraphrases.
        baseline: The method that the others are compared with, among `runs`.
    """
    contests = against(runs, baseline)
    return [
        {
            "method": name,
            **summary(run),
            **latency(run.times),
            **{f"by_{group}": groups(run, of) for group, of in _GROUPS.items()},
            "tokens": _tokens(run),
            "paraphrase": paraphrase_row(run, reworded[name]) if name in reworded else None,
            "against": contests.get(name),
        }
        for name, run in runs.items()
    ]


def summary(run: MethodRun, *, intervals: bool = True) -> dict[str, Any]:
    """Return how many requests there are, the means of their measures, and if wanted their `ci95`.

    `needed` is the mean number of steps that they need.
    """
    columns = {measure: run.column(measure) for measure in run.measures()}
    sizes = [len(request.needed.steps) for request in run.requests]
    counted = {"queries": len(sizes), "needed": float(np.mean(sizes)) if sizes else 0.0}
    if intervals:
        return {**counted, **summarise(columns)}
    return {**counted, **{measure: float(np.mean(column)) for measure, column in columns.items()}}


_GROUPS: dict[str, Callable[[KnownRequest], Iterable[str]]] = {
    "difficulty": lambda request: [request.difficulty or "unknown"],
    "tag": lambda request: request.tags or ["none"],
    "category": lambda request: {name for step in request.needed.steps for name in step.categories},
}
_RANK = {"single": 0, "easy": 1, "medium": 2, "hard": 3}  # difficulties are shown in this order


def groups(run: MethodRun, of: Callable[[KnownRequest], Iterable[str]]) -> dict[str, dict[str, Any]]:
    """Return a summary of each group's requests; a request may be in several."""
    members: dict[str, list[str]] = {}
    for request in run.requests:
        for group in of(request):
            members.setdefault(group, []).append(request.query_id)
    order = sorted(members, key=lambda name: (_RANK.get(name, len(_RANK)), -len(members[name]), name))
    return {group: summary(run.among(members[group]), intervals=False) for group in order}


def paraphrase_row(run: MethodRun, reworded: MethodRun) -> dict[str, Any]:
    """Return a summary of paraphrases, `original` of the same requests, `agreement`, and DA's difference.

    `agreement` is the share of requests on which DA is the same (SkillWeaver, section 7.4).
    """
    same = run.among([request.query_id for request in reworded.requests])
    a, b = reworded.column("da"), same.column("da")
    difference, low, high, p = paired_bootstrap(a, b)
    return {
        **summary(reworded),
        "original": summary(same, intervals=False),
        "agreement": float(np.mean([x == y for x, y in zip(a, b, strict=True)])),
        "difference": {"da": difference, "low": low, "high": high, "p": p},
    }


def against(runs: Mapping[str, MethodRun], baseline: str) -> dict[str, dict[str, Any]]:
    """Return `compared` of each other method with the baseline, by method and measure."""
    found: dict[str, dict[str, Any]] = {name: {} for name in runs if name != baseline}
    for measure in runs[baseline].measures():
        theirs = runs[baseline].column(measure)
        for name, own in found.items():
            own[measure] = compared(runs[name].column(measure), theirs)
        tests = [own[measure] for own in found.values()]
        for family in (tests, [test["wilcoxon"] for test in tests]):
            for test, p in zip(family, holm_bonferroni([test["p"] for test in family]), strict=True):
                test["p_adjusted"] = p
    return found


def compared(a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Return how `a` differs from `b` by a paired bootstrap, and by Wilcoxon's signed-rank test."""
    difference, low, high, p = paired_bootstrap(a, b)
    w, differing, p_ranks = wilcoxon(a, b)
    signs = [(x > y) - (x < y) for x, y in zip(a, b, strict=True)]
    return {
        "difference": difference, "low": low, "high": high, "p": p,
        "wilcoxon": {"w": w, "differing": differing, "p": p_ranks},
        "wins": signs.count(1), "losses": signs.count(-1),
    }  # fmt: skip


def _tokens(run: MethodRun) -> dict[str, float] | None:
    counted = [made.tokens for made in run.made if made.tokens is not None]
    if not counted:
        return None
    return {"chosen": float(np.mean([chosen for chosen, _ in counted])), "all": float(counted[0][1])}
