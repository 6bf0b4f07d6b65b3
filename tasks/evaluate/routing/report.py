"""The report of routing: tables for Markdown and for a terminal, the papers' figures, and a picture.

The papers' figures were measured on SkillsBench with 36,000 skills (SkillFlow) and 80,000 (SkillRouter, means
of its two tiers): what other tasks and skills give is read beside them, not against them. SkillFlow's MRR has
no cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.evaluate.measures.tables import (
    Block,
    Table,
    cell,
    columns,
    interval,
    markdown,
    means,
    papers,
    with_intervals,
)
from tasks.evaluate.paging.picture import COLOURS
from tasks.evaluate.routing.agents import COVERAGES
from tasks.evaluate.routing.attention import FIELDS
from tasks.evaluate.routing.data import POOL_NAMES
from tasks.evaluate.routing.measures import GROUP_MEASURES, PRECISIONS, RECALLS, SIGNALS

Row = Mapping[str, Any]
# Beyond the colours, lines differ in their dashes.
_LINES = (*COLOURS, "#000000")
_DASHES = ("-", "--", ":")
_LEGS = (("BM25", "bm25-description", "bm25-full"), ("dense", "dense-description", "dense-full"))


def beside_papers(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield `method`, `measure`, `here`, `paper` and `where`, for rows of methods that a paper has."""
    for row in rows:
        known = papers("routing").get(row["method"], {})
        for measure, value in known.items():
            if measure != "table":
                named = {"method": row["method"], "measure": measure}
                yield {**named, "here": row[measure], "paper": value, "where": known["table"]}


_METHOD = {"Method": "{method}"}
_SHOWN = (
    "hit@1", "hit@10", "mrr@10", "mrr", "ndcg@10", "recall@10", "recall@20", "recall@50", "recall@100",
    "recall@1000", "fc@10",
)  # fmt: skip
_METHODS = columns(_METHOD, with_intervals(_SHOWN))
_PRECISION = columns(_METHOD, with_intervals(f"precision@{k}" for k in PRECISIONS))
_CONTESTS = {
    "Method": "{method}", "Measure": "{measure}", "difference": "{difference:+.3f}",
    "relative": "{relative:+.1%}", "95% CI": "[{low:+.3f}, {high:+.3f}]", "p": "{p:.4f}",
    "p (Holm)": "{p_adjusted:.4f}", "Cohen's h": "{effect:+.2f}", "wins": "{wins}", "losses": "{losses}",
    "ties": "{ties}",
}  # fmt: skip
_BESIDE = {
    "Method": "{method}", "Measure": "{measure}", "here": "{here:.3f}", "paper": "{paper:.3f}",
    "where": "{where}",
}  # fmt: skip
_FIELDS = {
    "Leg": "{leg}", "Measure": "{measure}", "name and description": "{head:.3f}", "full text": "{full:.3f}",
    "difference": "{more:+.3f}",
}  # fmt: skip
_GROUPS = columns(
    {"Method": "{method}", "Group": "{group}", "Tasks": "{queries}"}, with_intervals(GROUP_MEASURES)
)
_REJECTION = columns(
    {
        "Method": "{method}", "Signal": "{signal}", "Among": "{among}", "Tasks": "{queries}",
        "Negatives": "{negatives}",
    },
    with_intervals({"auroc": "AUROC", "false_route_rate": "False routes"}),
    Excluded="{excluded:.3f}", ECE="{ece:.3f}",
)  # fmt: skip
_BINS = {
    "Method": "{method}", "Signal": "{signal}", "from": "{from:.3f}", "n": "{n}", "mean": "{confidence:.3f}",
    "right": "{accuracy:.3f}",
}  # fmt: skip
_PASSED = dict(
    zip(
        ("if one skill is enough (Hit@1)", "by each of ten (R@10)", "if all are needed (FC@10)"),
        (f"{{{measure}:.1%}}" for measure in COVERAGES),
        strict=True,
    )
)
_AGENTS = columns(_METHOD, {"Agent": "{agent}", "Without": "{without:.1%}", "With": "{with:.1%}"}, _PASSED)
_ENDS = columns(_METHOD, {
    "both": "{first_stage[both]}", "last alone": "{first_stage[last]}", "first alone": "{first_stage[first]}",
    "neither": "{first_stage[neither]}",
})  # fmt: skip
_LATENCY = {
    "Method": "{method}", "mean ms": "{mean_ms:.1f}", "median ms": "{median_ms:.1f}",
    "95th percentile ms": "{p95_ms:.1f}",
}  # fmt: skip
_LATENCY_NOTE = (
    "One task, its encoding included, in a warm process with the corpus indexed. "
    "What an LLM has answered before takes no time."
)
_STAGES = columns(
    {"Stage": "{stage}", "K": "{k}", "Metric": "{metric}"}, {f"@{k}": f"{{@{k}}}" for k in RECALLS},
    {"MRR": "{mrr}", "median ms": "{median_ms:.1f}", "p95 ms": "{p95_ms:.1f}"},
)  # fmt: skip
_LAYERS = columns(
    {"Layers": "{layers}"}, means(FIELDS, ".1%"),
    {f"{field}, paper": f"{{paper[{n}]:.1%}}" for n, field in enumerate(FIELDS)},
)  # fmt: skip


def routing_markdown(found: Row) -> str:
    """Return the whole report on a pool as Markdown.

    `found` holds `pool`, `skills`, `methods` (rows of `summarise_method`, each with its `rejection`),
    `contests` (as `contest` returns them), which may be none, and `scenario`.
    """
    rows, contests, over = found["methods"], found["contests"], found["methods"][0]["interval_over"]
    asked = f"{rows[0]['queries']} tasks over {found['skills']:,} skills ({POOL_NAMES[found['pool']]})"
    blocks: list[Block] = [
        "# Routing",
        f"{asked}; means over tasks, 95 % bootstrap intervals over {over}.",
        Table("Copies folded", _METHODS, rows),
        Table("Copies not folded", _METHODS, [{**row, **row["unfolded"]} for row in rows]),
        Table("Precision", _PRECISION, rows),
    ]
    if contests:
        blocks.append(Table(f"Against {contests[0]['baseline']}, task by task", _CONTESTS, contests))
    beside, fields = list(beside_papers(rows)), _fields(rows)
    blocks += [Table("Beside the papers, on other tasks and skills", _BESIDE, beside)] * bool(beside)
    blocks += [Table("Name and description against the full text", _FIELDS, fields)] * bool(fields)
    blocks.append(Table("Groups of tasks", _GROUPS, _groups(rows, "{}: {}")))
    if rejected := [row for row in rows if row["rejection"]]:
        blocks += ["## Tasks that no skill serves", *_rejection(rejected)]
    if found["scenario"]:
        blocks += ["## How often agents would pass", *_scenario(found["scenario"])]
    for row in rows:
        if row["stages"]:
            blocks.append(Table(f"Stages of {row['method']}", _STAGES, list(_cuts(row["stages"]))))
    if several := [row for row in rows if row["first_stage"]]:
        blocks.append(Table("First by the first stage, and by the last", _ENDS, several))
    return markdown([*blocks, Table("Latency", _LATENCY, rows), _LATENCY_NOTE])


def attention_markdown(rows: Sequence[Row]) -> str:
    """Return the rows of `attention_by_field` as Markdown, the paper's shares beside."""
    return markdown(["# Where the reranker looks", Table("", _LAYERS, rows)])


def _fields(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return what leaving the body out costs, as SkillRouter's table 1 has it; none where not measured."""
    known = {row["method"]: row for row in rows}
    return [
        {"leg": leg, "measure": m, "head": known[head][m], "full": known[full][m],
         "more": known[full][m] - known[head][m]}
        for leg, head, full in _LEGS
        if head in known and full in known
        for m in GROUP_MEASURES
    ]  # fmt: skip


def _groups(
    rows: Iterable[Row], named: str, by: Sequence[str] = ("length", "distinctive", "repo")
) -> list[Any]:
    """Return a row for each method and group of tasks that is not empty; `named` makes a group's name."""
    shown = {"length": "length", "distinctive": "distinctive", "repo": "repository"}
    return [
        {**part, "method": row["method"], "group": group}
        for row in rows
        for group, part in {
            "one skill": row["single"], "several skills": row["multi"],
            **{named.format(shown[b], name): part for b in by for name, part in row[f"by_{b}"].items()},
        }.items()
        if part["queries"]
    ]  # fmt: skip


def _signals(rows: Iterable[Row]) -> Iterator[tuple[dict[str, Any], Row]]:
    """Yield what names each method and signal, and what was found by it."""
    for row in rows:
        rejection = row["rejection"]
        for signal in (name for name in SIGNALS if rejection[name]):
            named = {"method": row["method"], "signal": signal, "excluded": rejection["excluded@1"]}
            yield named, rejection[signal]


def _rejection(rows: Sequence[Row]) -> list[Block]:
    """Return what is measured, the separation by each signal, and the bins of reliability."""
    first, cells, bins = rows[0]["rejection"], [], []
    said = (
        f"{first['negatives']} tasks that their skill is not for, beside {first['queries']} that one serves."
        f" False routes: the share of the former that is routed where {first['recall']:g} of the latter is."
        " Excluded: the first skill is the one that the task is not for. ECE: expected calibration error,"
        " 10 bins of equal count, of scores within 0 and 1."
    )
    for named, found in _signals(rows):
        cells.append({**found, **named, "among": "all"})
        within = {**named, "excluded": None, "ece": None}
        cells += [{**of, **within, "among": repo} for repo, of in found["by_repo"].items()]
        bins += [{**one, **named} for one in found["reliability"] or ()]
    tables: list[Block] = [said, Table("", _REJECTION, cells)]
    return [*tables, Table("", _BINS, bins)] if bins else tables


def _scenario(found: Sequence[Row]) -> list[Block]:
    """Return the expected pass rates of methods, means over agents, and those of each agent."""
    agents = found[0]["agents"]
    rates = [sum(agent[key] for agent in agents) / len(agents) for key in ("without", "with")]
    said = (
        f"An estimate over {len(agents)} agents, who pass {rates[0]:.1%} without skills and {rates[1]:.1%}"
        " with those needed: a share of the gain between these, as large as the coverage."
    )
    each = [{"method": one["method"], **agent} for one in found for agent in one["agents"]]
    return [
        said,
        Table("", columns(_METHOD, _PASSED), [{"method": one["method"], **one["mean"]} for one in found]),
        Table("", _AGENTS, each),
    ]


def _cuts(stages: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield recall and precision at each cut that a stage reaches, in the layout of SkillFlow's table 3."""
    for stage in stages:
        most = stage["k"] or RECALLS[-1]
        for metric, name, cuts in (("R", "recall", RECALLS), ("P", "precision", PRECISIONS)):
            reached = [k for k in cuts if k <= most]
            row = {f"@{k}": _said(stage, f"{name}@{k}") if k in reached else "" for k in RECALLS}
            ends = {"mrr": _said(stage, "mrr"), "median_ms": stage["median_ms"], "p95_ms": stage["p95_ms"]}
            yield {**row, "stage": stage["stage"], "k": stage["k"] or "", "metric": metric} | (
                ends if metric == "R" else {}
            )


def _said(row: Row, measure: str) -> str:
    [form] = with_intervals([measure]).values()
    return cell(form, row)


_MEASURES = ("hit@1", "mrr@10", "ndcg@10", "recall@10", "recall@20", "recall@50", "fc@10")
_CHIEF = ("hit@1", "mrr@10", "recall@10", "recall@50")
_TIMES = {"ms": "{median_ms:.0f}", "p95": "{p95_ms:.0f}"}


def _short(measures: Iterable[str]) -> dict[str, str]:
    return {measure: measure.replace("recall", "R") for measure in measures}


_BRIEF = columns("method", means(_short(_MEASURES)))
_BRIEF_INTERVALS = columns(
    "method", {name: interval(m, around=("", "–", "")) for m, name in _short(_CHIEF).items()}, _TIMES
)
_BRIEF_CHIEF = means(_short(_CHIEF))
_BRIEF_GROUPS = columns("method", "group", {"tasks": "{queries}"}, means(_short((*_CHIEF, "fc@10"))))
_BRIEF_STAGES = columns("stage", "k", means(_short(_MEASURES)), _TIMES)
_BRIEF_REJECTION = columns(
    {"method": "{method}"},
    with_intervals({"auroc": "AUROC", "false_route_rate": "routed"}, around=(" ", "–", "")),
    {"excl@1": "{excluded:.3f|}", "ECE": "{ece:.3f|}"},
)
_BRIEF_WITHIN = columns(
    "method", {"repository": "{among}", "tasks": "{queries}"}, "negatives", AUROC="{auroc:.3f|}"
)
_BRIEF_CONTESTS = {
    "method": "{method}", "measure": "{measure}", "more": "{difference:+.3f}",
    "95 %": "{low:+.2f}–{high:+.2f}", "p": "{p_adjusted:.4f}", "won:lost": "{wins}:{losses}",
    "h": "{effect:+.2f|}",
}  # fmt: skip


def terminal_blocks(found: Row) -> list[Block]:
    """Return what a person sees of what the command returns, pool by pool."""
    blocks = [block for pool in found["pools"] for block in _pool_blocks(pool)]
    if looks := found.get("attention"):
        shares = columns("layers", means(FIELDS, ".1%"))
        blocks.append(Table("where the reranker looks, by layer", shares, looks))
    if llm := found["llm"]:
        known = f"{llm['cached']} answers known before, cost {llm['cost']:g}"
        without = ", ".join(f"{why} {n}" for why, n in llm["fallbacks"].items()) or "none"
        blocks.append(f"asked of {llm['model']}: {llm['requests']} requests, {known}")
        blocks.append(f"went without an answer: {without}")
    return blocks + [f"written: {file}" for file in found.get("report", ())]


def contest_block(contests: Sequence[Row]) -> Table:
    """Return each method's difference to the baseline, and on how many tasks it wins and loses."""
    shown = dict(_BRIEF_CONTESTS)
    if not any(one.get("effect") is not None for one in contests):
        del shown["h"]
    return Table(f"against {contests[0]['baseline']}, task by task; p by Holm", shown, contests)


def _pool_blocks(found: Row) -> list[Block]:
    rows, over = found["methods"], found["methods"][0]["interval_over"]
    title = f"routing, {rows[0]['queries']} tasks over {found['skills']:,} skills, copies folded"
    blocks: list[Block] = [
        Table(title, _BRIEF, rows),
        f"skills: {POOL_NAMES[found['pool']]}",
        Table(f"95 % intervals over {over}, and times", _BRIEF_INTERVALS, rows),
        Table("copies not folded", _BRIEF, [{**row, **row["unfolded"]} for row in rows]),
        Table("groups of tasks", _BRIEF_GROUPS, _groups(rows, "{1}", ("length", "distinctive"))),
    ]
    for row in rows:
        repos = [{**part, "repository": repo} for repo, part in row["by_repo"].items()]
        of_repo = columns("repository", {"tasks": "{queries}"}, _BRIEF_CHIEF)
        blocks.append(Table(f"{row['method']}, by repository", of_repo, repos))
        blocks.append(Table(f"stages of {row['method']}", _BRIEF_STAGES, row["stages"]))
        if parts := row["first_stage"]:
            alone = f"{parts['last']} by the last alone, {parts['first']} by the first alone"
            blocks.append(f"{row['method']}: right first skills {parts['both']} by both its ends, {alone}")
    if rejected := [row for row in rows if row["rejection"]]:
        blocks += _brief_rejection(rejected)
    if scenario := found["scenario"]:
        title = f"tasks that {len(scenario[0]['agents'])} agents would pass, an estimate"
        passed = [{"method": one["method"], **one["mean"]} for one in scenario]
        blocks.append(Table(title, columns("method", means(_short(COVERAGES), ".1%")), passed))
    beside = {name.lower(): form for name, form in _BESIDE.items()}
    blocks.append(Table("beside the papers, on other tasks and skills", beside, list(beside_papers(rows))))
    return [*blocks, contest_block(found["contests"])] if found["contests"] else blocks


def _brief_rejection(rows: Sequence[Row]) -> list[Block]:
    """Return how far the scores of tasks that no skill serves are below those of the others."""
    first, cells, within = rows[0]["rejection"], [], []
    for named, found in _signals(rows):
        name = named["method"] + ("" if named["signal"] == "score" else f": {named['signal']}")
        cells.append({**found, "method": name, "excluded": named["excluded"]})
        within += [{**part, "method": name, "among": repo} for repo, part in found["by_repo"].items()]
    asked = f"{first['negatives']} tasks that their skill is not for"
    return [
        Table(
            f"{asked}: how many are routed where {first['recall']:g} of {first['queries']} are",
            _BRIEF_REJECTION, cells,
        ),
        "excl@1: the skill that the task is not for is first; ECE: of scores in [0, 1]",
        Table("the same by repository", _BRIEF_WITHIN, within),
    ]  # fmt: skip


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
        for measure, mark, offset in (("hit@1", "o", -0.12), ("fc@10", "s", 0.12)):
            bounds = [100 * bound for bound in row["ci95"][measure]]
            firsts.plot(bounds, [i + offset] * 2, color=colour, linewidth=1.5)
            firsts.plot(100 * row[measure], i + offset, marker=mark, color=colour)
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
