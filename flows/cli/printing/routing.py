"""The form in which routing methods, and what was measured of them, are printed for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.cli.printing.measures import print_contests
from flows.commands.console import counts, say, table
from tasks.evaluate.routing.attention import FIELDS
from tasks.evaluate.routing.papers import beside_papers
from tasks.evaluate.routing.pools import POOL_NAMES
from tasks.evaluate.routing.rejection import SIGNALS
from tasks.evaluate.routing.scenario import COVERAGES

_MEASURES = ("hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@20", "recall@50", "fc@10")
_CHIEF = ("hit@1", "mrr@10", "recall@10", "recall@50")


def print_routing(found: dict[str, Any]) -> None:
    """Print methods with 95 % intervals, groups of tasks, stages, and wins over the baseline, by pool."""
    for pool in found["pools"]:
        _print_pool(pool)
    if found.get("attention"):
        cells = [[row["layers"], *(f"{row[field]:.1%}" for field in FIELDS)] for row in found["attention"]]
        table("where the reranker looks, by layer", ["layers", *FIELDS], cells)
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
        title, ["method", *map(_short, _MEASURES)], [[row["method"], *_means(row, _MEASURES)] for row in rows]
    )
    say(f"skills: {POOL_NAMES[found['pool']]}")
    cells = [[row["method"], *(_interval(row, measure) for measure in _CHIEF), *_times(row)] for row in rows]
    over = rows[0]["interval_over"]
    table(f"95 % intervals over {over}, and times", ["method", *map(_short, _CHIEF), "ms", "p95"], cells)
    bare = [[row["method"], *_means(row["unfolded"], _MEASURES)] for row in rows]
    table("copies not folded", ["method", *map(_short, _MEASURES)], bare)
    groups = [group for row in rows for group in _groups(row)]
    table("groups of tasks", ["method", "group", "tasks", *map(_short, (*_CHIEF, "fc@10"))], groups)
    for row in rows:
        if row["by_repo"]:
            cells = [[repo, part["queries"], *_means(part, _CHIEF)] for repo, part in row["by_repo"].items()]
            table(f"{row['method']}, by repository", ["repository", "tasks", *map(_short, _CHIEF)], cells)
        if row["stages"]:
            cells = [[s["stage"], s["k"], *_means(s, _MEASURES), *_times(s)] for s in row["stages"]]
            columns = ["stage", "k", *map(_short, _MEASURES), "ms", "p95"]
            table(f"stages of {row['method']}", columns, cells)
        if parts := row["first_stage"]:
            alone = f"{parts['last']} by the last alone, {parts['first']} by the first alone"
            say(f"{row['method']}: right first skills {parts['both']} by both its ends, {alone}")
    if rejected := [row for row in rows if row["rejection"]]:
        _print_rejection(rejected)
    if found["scenario"]:
        cells = [[one["method"], *(f"{one['mean'][m]:.1%}" for m in COVERAGES)] for one in found["scenario"]]
        agents = len(found["scenario"][0]["agents"])
        table(
            f"tasks that {agents} agents would pass, an estimate", ["method", *map(_short, COVERAGES)], cells
        )
    if beside := list(beside_papers(rows)):
        columns = ["method", "measure", "here", "paper", "where"]
        table("beside the papers, on other tasks and skills", columns, beside)
    if found["contests"]:
        print_contests(found["contests"])


def _groups(row: dict[str, Any]) -> list[list[Any]]:
    groups = {"one skill": row["single"], "several skills": row["multi"], **row["by_length"]}
    groups |= row["by_distinctive"]
    return [
        [row["method"], name, part["queries"], *_means(part, (*_CHIEF, "fc@10"))]
        for name, part in groups.items()
        if part["queries"]
    ]


def _print_rejection(rows: list[dict[str, Any]]) -> None:
    """Print how far the scores of tasks that no skill serves are below those of the others."""
    first, cells, parts = rows[0]["rejection"], [], []
    for row in rows:
        rejection = row["rejection"]
        for signal in (name for name in SIGNALS if rejection[name]):
            found, name = rejection[signal], row["method"] + ("" if signal == "score" else f": {signal}")
            with_intervals = (f"{found[m]:.3f} {_interval(found, m)}" for m in ("auroc", "false_route_rate"))
            cells.append([name, *with_intervals, _share(rejection["excluded@1"]), _share(found["ece"])])
            parts += [
                [name, repo, part["queries"], part["negatives"], _share(part["auroc"])]
                for repo, part in found["by_repo"].items()
            ]
    asked = f"{first['negatives']} tasks that their skill is not for"
    title = f"{asked}: how many are routed where {first['recall']:g} of {first['queries']} are"
    table(title, ["method", "AUROC", "routed", "excl@1", "ECE"], cells)
    say("excl@1: the skill that the task is not for is first; ECE: of scores in [0, 1]")
    if parts:
        table("the same by repository", ["method", "repository", "tasks", "negatives", "AUROC"], parts)


def _short(measure: str) -> str:
    return measure.replace("recall", "R")


def _means(row: dict[str, Any], measures: Sequence[str]) -> list[str]:
    return [f"{row[measure]:.3f}" for measure in measures]


def _times(row: dict[str, Any]) -> list[str]:
    return [f"{row['median_ms']:.0f}", f"{row['p95_ms']:.0f}"]


def _interval(row: dict[str, Any], measure: str) -> str:
    low, high = row["ci95"][measure]
    return f"{low:.2f}–{high:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
