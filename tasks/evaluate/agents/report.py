"""The report of agents that act: how often they pass, what that takes, and whether skills are used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.evaluate.measures.runs import grouped, paired_tests, summarise
from tasks.evaluate.measures.statistics import cohen_h
from tasks.evaluate.measures.tables import Block, Table, columns, means, with_intervals

MEASURES = (
    "pass@1", "pass@k", "pass^k", "score", "steps", "tokens", "cost", "seconds", "given", "skills", "oracle",
    "used",
)  # fmt: skip
Row = Mapping[str, Any]


def task_row(attempts: Sequence[Row], k: int, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the measures of a task by a method, each the mean over at least k attempts.

    Pass@k, that one of k attempts passes, and Pass^k, that all do, are the unbiased estimates 1 - C(n - c, k)
    / C(n, k) and C(c, k) / C(n, k) of n attempts of which c pass (https://arxiv.org/abs/2107.03374). `oracle`
    is the share found of the skills that the task's author wants, None without any.
    """
    runs, passed = len(attempts), sum(one["score"] >= 1 for one in attempts)
    used = [bool(one["used"]) for one in attempts if one["used"] is not None]
    found = [len({*wanted} & {*one["skills"]}) for one in attempts]
    means_of = {"score": "score", "steps": "turns", "tokens": "tokens", "cost": "cost", "seconds": "seconds"}
    return {
        "pass@1": passed / runs, "pass@k": 1 - math.comb(runs - passed, k) / math.comb(runs, k),
        "pass^k": math.comb(passed, k) / math.comb(runs, k),
        **{name: float(np.mean([one[field] for one in attempts])) for name, field in means_of.items()},
        "given": float(np.mean([bool(one["skills"]) for one in attempts])),
        "skills": float(np.mean([len(one["skills"]) for one in attempts])),
        "oracle": float(np.mean(found)) / len(set(wanted)) if wanted else None,
        "used": float(np.mean(used)) if used else None,
    }  # fmt: skip


def summarise_agents(
    rows: Sequence[Row], ended: Mapping[str, Mapping[str, int]], errors: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a row a method: its measures with `ci95` over tasks, `by_domain`, `ended`, `error`, `against`.

    `against` is the difference to the first method in Pass@1 on the same tasks, its interval, p (paired
    bootstrap; `adjusted_p` by Holm over the methods), and Cohen's h; null for the first. A measure that no
    task has is null. `rows` are those of `task_row` with `method`, `query_id` and `domain`, of each method
    the same tasks; `ended` and `errors` say by method how attempts ended, and what went wrong in one.
    """
    methods = grouped(rows, lambda row: str(row["method"]))
    first, *others = ([float(row["pass@1"]) for row in own] for own in methods.values())
    against: list[dict[str, Any] | None] = [None]
    for test, other in zip(paired_tests([(other, first) for other in others]), others, strict=True):
        against.append({**test.row(), "cohen_h": cohen_h(other, first)})
    return [
        {
            "method": name, "tasks": len(own), **dict.fromkeys(MEASURES), **_summary(own),
            "by_domain": {
                domain: {"tasks": len(each), "pass@1": float(np.mean([row["pass@1"] for row in each]))}
                for domain, each in grouped(own, lambda row: str(row["domain"])).items()
            },
            "ended": dict(ended[name]), "error": errors.get(name), "against": difference,
        }
        for (name, own), difference in zip(methods.items(), against, strict=True)
    ]  # fmt: skip


def _summary(own: Sequence[Row]) -> dict[str, Any]:
    known = {name: [float(row[name]) for row in own if row[name] is not None] for name in MEASURES}
    told = [summarise({name: values}) for name, values in known.items() if values]
    return {**{name: value for one in told for name, value in one.items()},
            "ci95": {name: pair for one in told for name, pair in one["ci95"].items()}}  # fmt: skip


_TOOK = columns(
    "method", means(["steps"], ".1f"), means(["tokens"], ",.0f"), means(["cost"], ".4f"),
    means(("given", "skills"), ".2f"), {"needed": "{oracle:.2f|-}", "used": "{used:.2f|-}"},
)  # fmt: skip


def terminal_blocks(found: Row) -> list[Block]:
    """Return what a person sees."""
    k, rows = found["k"], found["methods"]
    said = f"{found['agent']}: {found['tasks']} tasks, {found['runs']} attempts at each by each method"
    blocks: list[Block] = [said]
    if left := found["unfinished"]:
        partial = f"partial: {sum(left.values())} attempts are left for the next run ({_counts(left)});"
        blocks.append(f"{partial} figures are of the tasks that each method did {k} times")
    heads = {"pass@1": "Pass@1", "pass@k": f"Pass@{k}", "pass^k": f"Pass^{k}"}
    passes = columns("method", with_intervals(heads, ".2z", ".2z", (" ", "-", "")))
    others = [row for row in rows if row["ended"].keys() - {"done"}]
    domains = list(rows[0]["by_domain"])
    shares = [{**row, "of": [row["by_domain"][name]["pass@1"] for name in domains]} for row in rows]
    by_domain = columns("method", {name: f"{{of[{place}]:.3f}}" for place, name in enumerate(domains)})
    blocks += [
        *(f"{row['method']}: attempts ended by {_counts(row['ended'])}" for row in others),
        *(f"{row['method']}, the last: {row['error']}" for row in others if row["error"]),
        Table("passed, with 95 % intervals over tasks", passes, rows),
        Table("what an attempt took, and its skills", _TOOK, rows),
        Table("Pass@1 by domain", by_domain, shares if len(domains) > 1 else []),
    ]
    for row in rows[1:]:
        test = row["against"]
        blocks.append(
            f"{row['method']} less {rows[0]['method']}: {test['difference']:+.3f} in Pass@1"
            f" [{test['ci95'][0]:+.3f}, {test['ci95'][1]:+.3f}], adjusted p {test['adjusted_p']:.4f},"
            f" h {test['cohen_h']:+.2f}"
        )
    return blocks + [f"written: {file}" for file in found.get("report", ())]


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
