"""The form in which a measurement of routing is printed for a person."""

from __future__ import annotations

from typing import Any

from flows.console import counts, say, table

_MEASURES = ("hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@20", "recall@50", "fc@10")
_GROUPED = ("hit@1", "mrr@10", "recall@10", "fc@10")


def print_routing(found: dict[str, Any]) -> None:
    """Print methods with 95 % intervals, groups of tasks, stages, and wins over the baseline."""
    rows = found["methods"]
    title = f"routing, {rows[0]['queries']} tasks over {found['skills']:,} skills, copies folded"
    table(title, ["method", *_MEASURES, "ms", "p95"], [[row["method"], *_figures(row)] for row in rows])
    bare = [[row["method"], *(_cell(row["unfolded"], m) for m in _MEASURES)] for row in rows]
    table("copies not folded", ["method", *_MEASURES], bare)
    groups = [group for row in rows for group in _groups(row)]
    table("groups of tasks", ["method", "group", "tasks", *_GROUPED], groups)
    for row in rows:
        if row["stages"]:
            stages = [[stage["stage"], stage["k"], *_figures(stage)] for stage in row["stages"]]
            table(f"stages of {row['method']}", ["stage", "k", *_MEASURES, "ms", "p95"], stages)
    if found["contests"]:
        print_contests(found["contests"])
    if found["llm"]:
        llm = found["llm"]
        known = f"{llm['cached']} answers known before, cost {llm['cost']:g}"
        say(f"asked of {llm['model']}: {llm['requests']} requests, {known}")
        say(f"went without an answer: {counts(llm['fallbacks'])}")


def print_contests(contests: list[dict[str, Any]]) -> None:
    """Print each method's difference to the baseline, and on how many tasks it wins and loses."""
    columns = ["method", "measure", "difference", "95 %", "p adjusted", "wins", "losses", "ties"]
    rows = [
        [
            c["method"], c["measure"], f"{c['difference']:+.3f}", f"{c['low']:+.2f}–{c['high']:+.2f}",
            f"{c['p_adjusted']:.4f}", c["wins"], c["losses"], c["ties"],
        ]
        for c in contests
    ]  # fmt: skip
    table(f"against {contests[0]['baseline']}, task by task", columns, rows)


def _groups(row: dict[str, Any]) -> list[list[Any]]:
    groups = {"one skill": row["single"], "several skills": row["multi"], **row["by_length"]}
    groups |= row["by_distinctive"]
    return [
        [row["method"], name, part["queries"], *(_cell(part, m) for m in _GROUPED)]
        for name, part in groups.items()
        if part["queries"]
    ]


def _figures(row: dict[str, Any]) -> list[str]:
    return [*(_cell(row, m) for m in _MEASURES), f"{row['median_ms']:.0f}", f"{row['p95_ms']:.0f}"]


def _cell(row: dict[str, Any], measure: str) -> str:
    low, high = row["ci95"][measure]
    return f"{row[measure]:.3f} {low:.2f}–{high:.2f}"
