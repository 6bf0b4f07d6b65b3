"""The form in which routing methods, and what was measured of them, are printed for a person."""

from __future__ import annotations

from typing import Any

from flows.cli.printing.measures import print_contests
from flows.commands.console import counts, say, table
from tasks.evaluate.routing.pools import POOL_NAMES
from tasks.evaluate.routing.rejection import SIGNALS

_ROUTING_MEASURES = ("hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@20", "recall@50", "fc@10")
_GROUPED = ("hit@1", "mrr@10", "recall@10", "fc@10")


def print_routing(found: dict[str, Any]) -> None:
    """Print methods with 95 % intervals, groups of tasks, stages, and wins over the baseline, by pool."""
    for pool in found["pools"]:
        _print_pool(pool)
    if found["llm"]:
        llm = found["llm"]
        known = f"{llm['cached']} answers known before, cost {llm['cost']:g}"
        say(f"asked of {llm['model']}: {llm['requests']} requests, {known}")
        say(f"went without an answer: {counts(llm['fallbacks'])}")
    for file in found.get("report", ()):
        say(f"written: {file}")


def _print_pool(found: dict[str, Any]) -> None:
    rows = found["methods"]
    title = f"routing, {rows[0]['queries']} tasks over {found['skills']:,} skills, copies folded"
    table(
        title, ["method", *_ROUTING_MEASURES, "ms", "p95"], [[row["method"], *_figures(row)] for row in rows]
    )
    say(f"skills: {POOL_NAMES[found['pool']]}; 95 % intervals over {rows[0]['interval_over']}")
    bare = [[row["method"], *(_cell(row["unfolded"], m) for m in _ROUTING_MEASURES)] for row in rows]
    table("copies not folded", ["method", *_ROUTING_MEASURES], bare)
    groups = [group for row in rows for group in _groups(row)]
    table("groups of tasks", ["method", "group", "tasks", *_GROUPED], groups)
    for row in rows:
        if row["by_repo"]:
            _print_repositories(row)
        if row["stages"]:
            stages = [[stage["stage"], stage["k"], *_figures(stage)] for stage in row["stages"]]
            table(f"stages of {row['method']}", ["stage", "k", *_ROUTING_MEASURES, "ms", "p95"], stages)
    if rejected := [row for row in rows if row["rejection"]]:
        _print_rejection(rejected)
    if found["contests"]:
        print_contests(found["contests"])


_OF_REPOSITORIES = ("hit@1", "mrr@10", "recall@10", "recall@50")


def _print_repositories(row: dict[str, Any]) -> None:
    cells = [
        [repo, part["queries"], *(f"{part[measure]:.3f}" for measure in _OF_REPOSITORIES)]
        for repo, part in row["by_repo"].items()
    ]
    table(f"{row['method']}, by repository", ["repository", "tasks", *_OF_REPOSITORIES], cells)


def _print_rejection(rows: list[dict[str, Any]]) -> None:
    """Print how far the scores of tasks that no skill serves are below those of the others."""
    first = rows[0]["rejection"]
    asked = f"{first['negatives']} tasks that their skill is not for"
    title = f"{asked}: how many are routed where {first['recall']:g} of {first['queries']} are"
    cells = []
    for row in rows:
        rejection = row["rejection"]
        for signal in (name for name in SIGNALS if rejection[name]):
            found, name = rejection[signal], row["method"] + ("" if signal == "score" else f": {signal}")
            ends = [_share(rejection["excluded@1"]), _share(found["ece"])]
            cells.append([name, "all", *_separated(found), *ends])
            cells += [["", repo, *_separated(part), "", ""] for repo, part in found["by_repo"].items()]
    table(title, ["method", "among", "AUROC", "routed", "excl@1", "ECE"], cells)
    say("excl@1: the skill that the task is not for is first; ECE: of scores within 0 and 1")


def _separated(found: dict[str, Any]) -> list[str]:
    return [_cell(found, "auroc"), _cell(found, "false_route_rate")]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _groups(row: dict[str, Any]) -> list[list[Any]]:
    groups = {"one skill": row["single"], "several skills": row["multi"], **row["by_length"]}
    groups |= row["by_distinctive"]
    return [
        [row["method"], name, part["queries"], *(_cell(part, m) for m in _GROUPED)]
        for name, part in groups.items()
        if part["queries"]
    ]


def _figures(row: dict[str, Any]) -> list[str]:
    return [*(_cell(row, m) for m in _ROUTING_MEASURES), f"{row['median_ms']:.0f}", f"{row['p95_ms']:.0f}"]


def _cell(row: dict[str, Any], measure: str) -> str:
    low, high = row["ci95"][measure]
    return f"{row[measure]:.3f} {low:.2f}–{high:.2f}"
