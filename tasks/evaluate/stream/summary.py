"""Summaries of a walked stream: means with intervals over tasks, by domain, and methods compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.evaluate.measures.statistics import clustered_interval, holm_bonferroni, paired_bootstrap
from tasks.evaluate.stream.decisions import MEASURES, Decision, mean

_POINTS = 40  # of a curve along the stream

Runs = Mapping[str, Sequence[Decision]]


def summarise(runs: Runs, baseline: str) -> list[dict[str, Any]]:
    """Return a row for each method: measures, `ci95` over tasks, `by_domain`, `along`, and `against`.

    `along` is the mean of `usable@5` up to each of 40 places of the stream (as SGDR, figure 4); `against` is
    the difference of `baseline` less the method over tasks, its interval, and p, adjusted for the number of
    methods (paired bootstrap, Holm-Bonferroni); null for the baseline itself.
    """
    against = _against(runs, baseline)
    return [
        {"method": name, **_row(decisions), "against": against.get(name)} for name, decisions in runs.items()
    ]


def _row(decisions: Sequence[Decision]) -> dict[str, Any]:
    tasks = [f"{one.domain}/{one.task_id}" for one in decisions]
    domains: defaultdict[str, list[Decision]] = defaultdict(list)
    for one in decisions:
        domains[one.domain].append(one)
    return {
        "steps": len(decisions),
        **{measure: mean(decisions, measure) for measure in MEASURES},
        "ci95": {
            measure: list(clustered_interval([one.value(measure) for one in decisions], tasks))
            for measure in MEASURES
            if decisions
        },
        "by_domain": {
            domain: {"steps": len(own), **{measure: mean(own, measure) for measure in MEASURES}}
            for domain, own in sorted(domains.items())
        },
        "along": along(decisions),
    }


def along(decisions: Sequence[Decision]) -> list[tuple[int, float]]:
    """Return the mean of `usable@5` over the first steps, at up to 40 places of the stream."""
    places = sorted({round(len(decisions) * n / _POINTS) for n in range(1, _POINTS + 1)} - {0})
    return [(place, mean(decisions[:place], "usable@5")) for place in places]


def _against(runs: Runs, baseline: str) -> dict[str, dict[str, Any]]:
    if baseline not in runs or not runs[baseline]:
        return {}
    own = _by_task(runs[baseline])
    found: dict[str, dict[str, Any]] = {}
    for name, decisions in runs.items():
        if name != baseline:
            other = _by_task(decisions)
            difference, low, high, p = paired_bootstrap(list(own.values()), [other[task] for task in own])
            found[name] = {"difference": difference, "ci95": [low, high], "p": p}
    adjusted = holm_bonferroni([row["p"] for row in found.values()])
    return {name: row | {"adjusted_p": p} for (name, row), p in zip(found.items(), adjusted, strict=True)}


def _by_task(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return the mean of `usable@5` of each task."""
    held: defaultdict[str, list[float]] = defaultdict(list)
    for one in decisions:
        held[f"{one.domain}/{one.task_id}"].append(one.value("usable@5"))
    return {task: sum(values) / len(values) for task, values in held.items()}
