"""Contests of methods with a baseline, task by task: differences, p-values, wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.errors import WrongInput
from tasks.evaluate.measures.statistics import cohen_h, holm_bonferroni, paired_bootstrap
from tasks.evaluate.routing.bench import GROUP_MEASURES, clusters_of

_SHARES = ("hit@1", "fc@10")  # of a task these are 0 or 1


@dataclass(frozen=True, slots=True)
class RoutingContest:
    """A method against the baseline in one measure, copies folded, by paired bootstrap.

    Drawn are the tasks, or clusters of them as `clusters_of` has it. `difference` is the method's mean less
    the baseline's, `low` and `high` its 95 % interval; `p_adjusted` by Holm and Bonferroni over the methods
    compared in that measure; `wins`, `losses` and `ties` count tasks. `effect` is Cohen's h, of measures that
    are shares of tasks, else None: below 0.2 negligible, below 0.5 small.
    """

    method: str
    baseline: str
    measure: str
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float
    wins: int
    losses: int
    ties: int
    effect: float | None = None


def contest(rows: pl.DataFrame, baseline: str) -> list[RoutingContest]:
    """Compare every other method with the baseline in `GROUP_MEASURES`, from rows of `measure_method`.

    Raises:
        WrongInput: The baseline was not measured.
    """
    answers = rows.filter((pl.col("stage") == "") & pl.col("folded")).sort("query_id")
    methods = answers["method"].unique(maintain_order=True).to_list()
    if baseline not in methods:
        msg = f"baseline {baseline!r} was not measured; measured were {', '.join(sorted(methods))}"
        raise WrongInput(msg)
    order = [m for m in rows["method"].unique(maintain_order=True) if m != baseline]
    by_method = {m: answers.filter(method=m) for m in methods}
    over, clusters = clusters_of(by_method[baseline])
    drawn = None if over == "tasks" else clusters
    return [
        one
        for measure in GROUP_MEASURES
        for one in _in_measure(
            measure, {m: part[measure].to_list() for m, part in by_method.items()}, order, baseline, drawn
        )
    ]


def _in_measure(
    measure: str,
    values: dict[str, list[float]],
    methods: Sequence[str],
    baseline: str,
    clusters: Sequence[str] | None,
) -> list[RoutingContest]:
    base = values[baseline]
    results = [paired_bootstrap(values[method], base, clusters=clusters) for method in methods]
    adjusted = holm_bonferroni([p for *_, p in results])
    found = []
    for method, (difference, low, high, p), p_adjusted in zip(methods, results, adjusted, strict=True):
        signs = [(a > b) - (a < b) for a, b in zip(values[method], base, strict=True)]
        counts = signs.count(1), signs.count(-1), signs.count(0)
        effect = cohen_h(values[method], base) if measure in _SHARES else None
        found.append(
            RoutingContest(method, baseline, measure, difference, low, high, p, p_adjusted, *counts, effect)
        )
    return found
