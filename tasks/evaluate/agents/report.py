"""The report of agents that act: how often they pass, what that takes, and whether skills are used."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
import polars as pl

from tasks.evaluate.measures.runs import grouped, long_table, paired_tests, summarise
from tasks.evaluate.measures.statistics import cohen_h
from tasks.evaluate.measures.tables import Block, Table, columns, markdown, means, with_intervals

PASSES = ("pass@1", "pass@k", "pass^k")
MEASURES = (*PASSES, "score", "steps", "tokens", "cost", "seconds", "given", "skills", "oracle", "used")
Row = Mapping[str, Any]


def pass_at(runs: int, passed: int, k: int) -> float:
    """Return the unbiased estimate of the chance that one of k attempts passes, of so many that were made.

    1 - C(runs - passed, k) / C(runs, k), after Chen et al. (https://arxiv.org/abs/2107.03374).
    """
    return 1 - math.comb(runs - passed, k) / math.comb(runs, k)


def pass_all(runs: int, passed: int, k: int) -> float:
    """Return the unbiased estimate of the chance that all of k attempts pass: C(passed, k) / C(runs, k)."""
    return math.comb(passed, k) / math.comb(runs, k)


def task_row(attempts: Sequence[Row], k: int, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the measures of a task by a method, each the mean over attempts.

    Args:
        attempts: At least k, as `Attempted.told` gives them.
        k: That of Pass@k and Pass^k.
        wanted: Ids of the skills that the task's author finds it needs; without any, `oracle` is None.
    """
    runs, passed = len(attempts), sum(one["score"] >= 1 for one in attempts)
    used = [bool(one["used"]) for one in attempts if one["used"] is not None]
    found = [len({*wanted} & {*one["skills"]}) for one in attempts]
    means_of = {"score": "score", "steps": "turns", "tokens": "tokens", "cost": "cost", "seconds": "seconds"}
    return {
        "pass@1": passed / runs, "pass@k": pass_at(runs, passed, k), "pass^k": pass_all(runs, passed, k),
        **{name: float(np.mean([one[field] for one in attempts])) for name, field in means_of.items()},
        "given": float(np.mean([bool(one["skills"]) for one in attempts])),
        "skills": float(np.mean([len(one["skills"]) for one in attempts])),
        "oracle": float(np.mean(found)) / len(set(wanted)) if wanted else None,
        "used": float(np.mean(used)) if used else None,
    }  # fmt: skip


def summarise_agents(rows: Sequence[Row], ended: Mapping[str, Counter[str]]) -> list[dict[str, Any]]:
    """Return a row for each method: its measures with `ci95` over tasks, `by_domain`, `ended`, and `against`.

    `against` is the difference to the first method in Pass@1 on the same tasks, its interval, p (paired
    bootstrap; `adjusted_p` by Holm over the methods), and Cohen's h; null for the first. A measure that no
    task has is null.

    Args:
        rows: Those of `task_row` with `method`, `query_id` and `domain`; of each method the same tasks.
        ended: By method, how attempts ended.
    """
    methods = grouped(rows, lambda row: str(row["method"]))
    first, *others = ([float(row["pass@1"]) for row in own] for own in methods.values())
    tests = paired_tests([(other, first) for other in others])
    against: list[dict[str, Any] | None] = [None]
    for test, other in zip(tests, others, strict=True):
        told = {"difference": test.difference, "ci95": [test.low, test.high], "p": test.p}
        against.append({**told, "adjusted_p": test.p_adjusted, "cohen_h": cohen_h(other, first)})
    return [
        {
            "method": name, "tasks": len(own), **dict.fromkeys(MEASURES), **_summary(own),
            "by_domain": {
                domain: {"tasks": len(each), "pass@1": float(np.mean([row["pass@1"] for row in each]))}
                for domain, each in grouped(own, lambda row: str(row["domain"])).items()
            },
            "ended": dict(ended.get(name, {})), "against": difference,
        }
        for (name, own), difference in zip(methods.items(), against, strict=True)
    ]  # fmt: skip


def _summary(own: Sequence[Row]) -> dict[str, Any]:
    found: dict[str, Any] = {"ci95": {}}
    for measure in MEASURES:
        if values := [float(row[measure]) for row in own if row[measure] is not None]:
            told = summarise({measure: values})
            found[measure], found["ci95"] = told[measure], found["ci95"] | told["ci95"]
    return found


def run_table(rows: Sequence[Row]) -> pl.DataFrame:
    """Return the long table; a query is a task."""
    return long_table("agents", pl.DataFrame(list(rows), infer_schema_length=None), MEASURES)


def terminal_blocks(found: Row) -> list[Block]:
    """Return what a person sees."""
    k, rows = found["k"], found["methods"]
    heads = {"pass@1": "Pass@1", "pass@k": f"Pass@{k}", "pass^k": f"Pass^{k}"}
    said = f"{found['agent']}: {found['tasks']} tasks, each done {found['runs']} times by each method"
    blocks: list[Block] = [said]
    if left := found["unfinished"]:
        told = ", ".join(f"{reason} {count}" for reason, count in left.items())
        partial = f"partial: {sum(left.values())} attempts are left for the next run ({told});"
        blocks.append(f"{partial} figures are of the tasks that each method did {k} times")
    intervals = with_intervals(heads, ".2z", ".2z", (" ", "-", ""))
    for row in rows:
        if row["ended"].keys() - {"done"}:
            told = ", ".join(f"{reason} {count}" for reason, count in sorted(row["ended"].items()))
            blocks.append(f"{row['method']}: attempts ended by {told}")
    blocks += [
        Table("passed, with 95 % intervals over tasks", columns("method", intervals), rows),
        Table("what an attempt took, and its skills", columns("method", _TOOK), rows),
        _domains(rows),
    ]  # fmt: skip
    for row in rows[1:]:
        low, high = row["against"]["ci95"]
        blocks.append(
            f"{row['method']} less {rows[0]['method']}: {row['against']['difference']:+.3f} in Pass@1"
            f" [{low:+.3f}, {high:+.3f}], adjusted p {row['against']['adjusted_p']:.4f},"
            f" h {row['against']['cohen_h']:+.2f}"
        )
    return blocks + [f"written: {file}" for file in found.get("report", ())]


_TOOK = columns(
    means(["steps"], ".1f"), means(["tokens"], ",.0f"), means(["cost"], ".4f"),
    means(("given", "skills"), ".2f"),
    {"needed": "{oracle:.2f|-}", "used": "{used:.2f|-}"},
)  # fmt: skip


def _domains(rows: Sequence[Row]) -> Table:
    names = list(rows[0]["by_domain"]) if rows else []
    shown = {name: f"{{shares[{number}]:.3f}}" for number, name in enumerate(names)}
    held = [{**row, "shares": [row["by_domain"][name]["pass@1"] for name in names]} for row in rows]
    return Table("Pass@1 by domain", {"method": "{method}", **shown}, held if len(names) > 1 else [])


def agents_markdown(found: Row) -> str:
    """Return the report with the papers' figures beside ours."""
    held = resources.files("tasks.evaluate").joinpath("data/papers_agents.json").read_text("utf-8")
    papers: dict[str, list[dict[str, Any]]] = json.loads(held)
    ours = {row["method"].partition(":")[0]: row for row in found["methods"]}
    blocks = [
        block for block in terminal_blocks({**found, "report": ()}) if isinstance(block, str) or block.rows
    ]
    for title, rows in papers.items():
        beside = [
            {f"{name}, paper": f"{{{name}}}", f"{name}, ours": f"{{ours[{name}]:{form}}}"}
            for name, form in _PAPER if any(name in row for row in rows)
        ]  # fmt: skip
        shown = columns({"": "{label}", "method": "{method}"}, *beside)
        blocks.append(Table(title, shown, [{**row, "ours": ours.get(row["method"], {})} for row in rows]))
    return markdown(["# Agents that act", _NOTE, *blocks])


_PAPER = (
    ("pass@1", ".1p"), ("pass@k", ".1p"), ("pass^k", ".1p"), ("steps", ".1f"), ("cost", ".3f"),
    ("skills", ".1f"), ("given", ".1p"), ("used", ".1p"),
)  # fmt: skip
_NOTE = (
    "Papers' figures are in per cent, of their own tasks, models and libraries; ours are of the tasks, the"
    " agent and the skills at hand, and say how these methods compare here."
)
