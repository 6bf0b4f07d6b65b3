"""The report on routing: tables in Markdown, and a picture of recall and first hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.evaluate.measures.tables import table
from tasks.evaluate.paging.picture import COLOURS
from tasks.evaluate.routing.bench import GROUP_MEASURES
from tasks.evaluate.routing.measures import PRECISIONS, RECALLS
from tasks.evaluate.routing.papers import beside_papers
from tasks.evaluate.routing.pools import POOL_NAMES
from tasks.evaluate.routing.rejection import SIGNALS
from tasks.evaluate.routing.scenario import COVERAGES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = (
    "hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@20", "recall@50", "recall@100", "recall@1000", "fc@10",
)  # fmt: skip
_BESIDE = ("Method", "Measure", "here", "paper", "where")
# Beyond the colours, lines differ in their dashes.
_LINES = (*COLOURS, "#000000")
_DASHES = ("-", "--", ":")
_FIELDS = (
    ("BM25", "bm25-description", "bm25-full"),
    ("dense", "dense-description", "dense-full"),
)


def routing_markdown(found: Mapping[str, Any]) -> str:
    """Return the whole report on a pool as Markdown.

    `found` holds `pool`, `skills`, `methods` (rows of `summarise_method`, each with its `rejection`) and
    `contests` (as `RoutingContest`), which may be none.
    """
    rows, contests, over = found["methods"], found["contests"], found["methods"][0]["interval_over"]
    asked = f"{rows[0]['queries']} tasks over {found['skills']:,} skills ({POOL_NAMES[found['pool']]})"
    said = f"{asked}; means over tasks, 95 % bootstrap intervals over {over}."
    parts = ["# Routing", said, "## Copies folded", _methods(rows)]
    parts += ["## Copies not folded", _methods([{**row, **row["unfolded"]} for row in rows])]
    parts += ["## Precision", _precision(rows)]
    if contests:
        parts += [f"## Against {contests[0]['baseline']}, task by task", contests_table(contests)]
    if beside := list(beside_papers(rows)):
        parts += ["## Beside the papers, on other tasks and skills", table(_BESIDE, beside)]
    if fields := _fields(rows):
        parts += ["## Name and description against the full text", fields]
    parts += ["## Groups of tasks", groups_table(rows)]
    if rejected := [row for row in rows if row["rejection"]]:
        parts += ["## Tasks that no skill serves", *rejection_tables(rejected)]
    if found["scenario"]:
        parts += ["## How often agents would pass", *scenario_tables(found["scenario"])]
    for row in rows:
        if row["stages"]:
            parts += [f"## Stages of {row['method']}", stages_table(row["stages"])]
    if several := [row for row in rows if row["first_stage"]]:
        parts += ["## First by the first stage, and by the last", decomposition_table(several)]
    parts += ["## Latency", _latency(rows)]
    return "\n\n".join(parts) + "\n"


def contests_table(contests: Sequence[Mapping[str, Any]]) -> str:
    """Return a row a method and measure; p-values adjusted by Holm and Bonferroni within each measure."""
    columns = (
        "Method",
        "Measure",
        "difference",
        "95% CI",
        "p",
        "p (Holm)",
        "Cohen's h",
        "wins",
        "losses",
        "ties",
    )
    rows = [
        [
            c["method"], c["measure"], f"{c['difference']:+.3f}", f"[{c['low']:+.3f}, {c['high']:+.3f}]",
            f"{c['p']:.4f}", f"{c['p_adjusted']:.4f}",
            "" if c["effect"] is None else f"{c['effect']:+.2f}", c["wins"], c["losses"], c["ties"],
        ]
        for c in contests
    ]  # fmt: skip
    return table(columns, rows)


def scenario_tables(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the expected pass rates of methods, means over agents, and those of each agent."""
    agents = found[0]["agents"]
    rates = [sum(agent[key] for agent in agents) / len(agents) for key in ("without", "with")]
    said = (
        f"An estimate over {len(agents)} agents, who pass {rates[0]:.1%} without skills and {rates[1]:.1%}"
        " with those needed: a share of the gain between these, as large as the coverage."
    )
    columns = ("if one skill is enough (Hit@1)", "by each of ten (R@10)", "if all are needed (FC@10)")
    means = [[one["method"], *(f"{one['mean'][m]:.1%}" for m in COVERAGES)] for one in found]
    each = [
        [one["method"], a["agent"], *(f"{a[key]:.1%}" for key in ("without", "with", *COVERAGES))]
        for one in found
        for a in one["agents"]
    ]
    return [
        said,
        table(("Method", *columns), means),
        table(("Method", "Agent", "Without", "With", *columns), each),
    ]


def decomposition_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return on how many tasks a right skill is first by both stages, by one alone, by none."""
    kinds = {"both": "both", "last": "last alone", "first": "first alone", "neither": "neither"}
    cells = [[row["method"], *(row["first_stage"][kind] for kind in kinds)] for row in rows]
    return table(("Method", *kinds.values()), cells)


def rejection_tables(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence on what is measured, the separation by each signal, and the bins of reliability."""
    first = rows[0]["rejection"]
    said = (
        f"{first['negatives']} tasks that their skill is not for, beside {first['queries']} that one serves."
        f" False routes: the share of the former that is routed where {first['recall']:g} of the latter is."
        " Excluded: the first skill is the one that the task is not for. ECE: expected calibration error,"
        " 10 bins of equal count, of scores within 0 and 1."
    )
    columns = ("Method", "Signal", "Among", "Tasks", "Negatives", "AUROC", "False routes", "Excluded", "ECE")
    cells, bins = [], []
    for row in rows:
        rejection = row["rejection"]
        for signal in (name for name in SIGNALS if rejection[name]):
            found = rejection[signal]
            ends = [_share(rejection["excluded@1"]), _share(found["ece"])]
            named = [row["method"], signal]
            cells.append([*named, "all", *_separated(found), *ends])
            cells += [[*named, repo, *_separated(of), "", ""] for repo, of in found["by_repo"].items()]
            bins += [
                [*named, f"{b['from']:.3f}", b["n"], f"{b['confidence']:.3f}", f"{b['accuracy']:.3f}"]
                for b in found["reliability"] or ()
            ]
    tables = [said, table(columns, cells)]
    return [*tables, table(("Method", "Signal", "from", "n", "mean", "right"), bins)] if bins else tables


def _separated(found: dict[str, Any]) -> list[object]:
    measures = (_with_interval(found, name) for name in ("auroc", "false_route_rate"))
    return [found["queries"], found["negatives"], *measures]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def groups_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return how each method does on tasks that need one skill and several, and by the bench's own groups."""
    found = []
    for row in rows:
        groups = {"one skill": row["single"], "several skills": row["multi"]}
        groups |= {f"length: {name}": part for name, part in row["by_length"].items()}
        groups |= {f"distinctive: {name}": part for name, part in row["by_distinctive"].items()}
        groups |= {f"repository: {name}": part for name, part in row["by_repo"].items()}
        found += [
            [row["method"], name, part["queries"], *(_with_interval(part, m) for m in GROUP_MEASURES)]
            for name, part in groups.items()
            if part["queries"]
        ]
    return table(("Method", "Group", "Tasks", *GROUP_MEASURES), found)


def stages_table(stages: Sequence[dict[str, Any]]) -> str:
    """Return recall and precision at each cut that a stage reaches, in the layout of SkillFlow's table 3."""
    columns = ("Stage", "K", "Metric", *(f"@{k}" for k in RECALLS), "MRR", "median ms", "p95 ms")
    rows = []
    for stage in stages:
        most = stage["k"] or RECALLS[-1]
        for label, name, cuts in (("R", "recall", RECALLS), ("P", "precision", PRECISIONS)):
            cells = [_with_interval(stage, f"{name}@{k}") if k in cuts and k <= most else "" for k in RECALLS]
            ends = ["", "", ""]
            if label == "R":
                times = [f"{stage['median_ms']:.1f}", f"{stage['p95_ms']:.1f}"]
                ends = [_with_interval(stage, "mrr"), *times]
            rows.append([stage["stage"], stage["k"] or "", label, *cells, *ends])
    return table(columns, rows)


def _methods(rows: Sequence[dict[str, Any]]) -> str:
    found = [[row["method"], *(_with_interval(row, measure) for measure in _SHOWN)] for row in rows]
    return table(("Method", *_SHOWN), found)


def _precision(rows: Sequence[dict[str, Any]]) -> str:
    names = [f"precision@{k}" for k in PRECISIONS]
    return table(("Method", *names), [[r["method"], *(_with_interval(r, n) for n in names)] for r in rows])


def _fields(rows: Sequence[dict[str, Any]]) -> str:
    """Return what leaving the body out costs, as SkillRouter's table 1 has it; empty where not measured."""
    by_name = {row["method"]: row for row in rows}
    found = []
    for leg, head, full in _FIELDS:
        if head in by_name and full in by_name:
            for measure in GROUP_MEASURES:
                a, b = by_name[head][measure], by_name[full][measure]
                found.append([leg, measure, f"{a:.3f}", f"{b:.3f}", f"{b - a:+.3f}"])
    columns = ("Leg", "Measure", "name and description", "full text", "difference")
    return table(columns, found) if found else ""


def _latency(rows: Sequence[dict[str, Any]]) -> str:
    kinds = ("mean_ms", "median_ms", "p95_ms")
    found = [[row["method"], *(f"{row[kind]:.1f}" for kind in kinds)] for row in rows]
    said = (
        "One task, its encoding included, in a warm process with the corpus indexed. "
        "What an LLM has answered before takes no time."
    )
    return table(("Method", "mean ms", "median ms", "95th percentile ms"), found) + f"\n\n{said}"


def _with_interval(row: dict[str, Any], measure: str) -> str:
    low, high = row["ci95"][measure]
    return f"{row[measure]:.3f} [{low:.2f}, {high:.2f}]"


def draw_routing(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw recall over the ranking's depth, hit@1 and fc@10, a colour for each row of `summarise_method`.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install '.[draw]' in Skillery's folder`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    figure = Figure(figsize=(12, 5), layout="constrained")
    recalls, firsts = figure.subplots(1, 2)
    for i, row in enumerate(rows):
        colour, dash = _LINES[i % len(_LINES)], _DASHES[i // len(_LINES) % len(_DASHES)]
        shares = [100 * row[f"recall@{k}"] for k in RECALLS]
        recalls.plot(
            RECALLS, shares, color=colour, linestyle=dash, marker="o", markersize=3, label=row["method"]
        )
        _draw_firsts(firsts, row, i, colour)
    recalls.set_xscale("log")
    recalls.set_xlabel("depth k of the ranking")
    recalls.set_ylabel("recall@k (%)")
    recalls.set_ylim(0, 102)
    recalls.grid(visible=True, alpha=0.3)
    recalls.legend(fontsize=8)
    firsts.set_yticks(range(len(rows)), [row["method"] for row in rows])
    firsts.invert_yaxis()
    firsts.set_xlim(0, 100)
    firsts.set_xlabel("hit@1 (dot) and fc@10 (square), % of tasks, 95 % intervals")
    firsts.grid(visible=True, axis="x", alpha=0.3)
    figure.suptitle(f"Routing: {rows[0]['queries']} tasks, copies folded", fontsize=10)
    figure.savefig(path, dpi=150)


def _draw_firsts(axes: Axes, row: dict[str, Any], place: int, colour: str) -> None:
    for measure, mark, offset in (("hit@1", "o", -0.12), ("fc@10", "s", 0.12)):
        low, high = (100 * bound for bound in row["ci95"][measure])
        axes.plot([low, high], [place + offset] * 2, color=colour, linewidth=1.5)
        axes.plot(100 * row[measure], place + offset, marker=mark, color=colour)
