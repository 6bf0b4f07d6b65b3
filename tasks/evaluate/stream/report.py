"""The report of a stream: summaries with intervals over tasks, SGDR's tables 2 to 4, and its figure 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tasks.evaluate.measures.runs import grouped, long_table, paired_tests, summarise
from tasks.evaluate.measures.tables import Block, Table, columns, interval, markdown, means
from tasks.evaluate.stream.walk import MEASURES, Decision
from tasks.induce.skills.actions import GRANULARITIES
from tasks.retrieve.suggest.methods import Method, SgdrSetting, sgdr

_POINTS = 40  # of a curve along the stream

Runs = Mapping[str, Sequence[Decision]]
Row = Mapping[str, Any]
# What each row of tables 2 and 3 is called; those that are methods anyway are not measured twice.
ALPHAS: Mapping[float, str] = {
    0.0: "state", 0.3: "sgdr alpha 0.3", 0.5: "sgdr", 0.7: "sgdr alpha 0.7", 1.0: "task",
}  # fmt: skip
RELEVANCE_WEIGHTS: Mapping[float | None, str] = {
    None: "sgdr without MMR", 0.5: "sgdr MMR 0.5", 0.7: "sgdr", 0.9: "sgdr MMR 0.9",
}  # fmt: skip


def variants(most: int | None = None) -> Mapping[str, Method]:
    """Return the methods of SGDR's tables 2 and 3 by name: weights of the task, and of MMR; `most` is M."""
    return {
        **{name: sgdr(SgdrSetting(alpha, most=most)) for alpha, name in ALPHAS.items()},
        **{name: sgdr(SgdrSetting(relevance_weight=w, most=most)) for w, name in RELEVANCE_WEIGHTS.items()},
    }


def summarise_runs(runs: Runs, baseline: str) -> list[dict[str, Any]]:
    """Return a row for each method: measures, `ci95` over tasks, `by_domain`, `along`, and `against`.

    `along` is the mean of `usable@5` up to each of 40 places of the stream (as SGDR, figure 4); `against` is
    the difference of `baseline` less the method over tasks, its interval, and p, adjusted for the number of
    methods (paired bootstrap, Holm-Bonferroni); null for the baseline itself.
    """
    against = _against(runs, baseline)
    return [
        {"method": name, **_row(decisions), "against": against.get(name)} for name, decisions in runs.items()
    ]


def decision_means(decisions: Sequence[Decision]) -> dict[str, float]:
    """Return the mean of each measure; 0 where there are no decisions."""
    count = max(len(decisions), 1)
    return {measure: sum(one.value(measure) for one in decisions) / count for measure in MEASURES}


def run_table(runs: Runs) -> pl.DataFrame:
    """Return the long table of decisions; a query is a step of a trajectory."""
    rows = [
        {
            "method": name, "query_id": f"{one.trajectory_id}#{one.t}",
            "trajectory_id": one.trajectory_id, "task_id": one.task_id, "domain": one.domain, "t": one.t,
            **{measure: one.value(measure) for measure in MEASURES},
        }
        for name, decisions in runs.items()
        for one in decisions
    ]  # fmt: skip
    return long_table("stream", pl.DataFrame(rows, infer_schema_length=None), MEASURES)


def _row(decisions: Sequence[Decision]) -> dict[str, Any]:
    values = {measure: [one.value(measure) for one in decisions] for measure in MEASURES}
    domains = grouped(sorted(decisions, key=lambda one: one.domain), lambda one: one.domain)
    return {
        "steps": len(decisions),
        **(
            summarise(values, [_task(one) for one in decisions])
            if decisions
            else decision_means(()) | {"ci95": {}}
        ),
        "by_domain": {
            domain: {"steps": len(own), **decision_means(own), "along": along(own)}
            for domain, own in domains.items()
        },
        "along": along(decisions),
    }


def _task(decision: Decision) -> str:
    return f"{decision.domain}/{decision.task_id}"


def along(decisions: Sequence[Decision]) -> list[tuple[int, float]]:
    """Return the mean of `usable@5` over the first steps, at up to 40 places of the stream."""
    places = sorted({round(len(decisions) * n / _POINTS) for n in range(1, _POINTS + 1)} - {0})
    return [(place, decision_means(decisions[:place])["usable@5"]) for place in places]


def _against(runs: Runs, baseline: str) -> dict[str, dict[str, Any]]:
    if baseline not in runs or not runs[baseline]:
        return {}
    own = _by_task(runs[baseline])
    others = {name: _by_task(decisions) for name, decisions in runs.items() if name != baseline}
    tests = paired_tests([(list(own.values()), [other[task] for task in own]) for other in others.values()])
    return {name: test.row() for name, test in zip(others, tests, strict=True)}


def _by_task(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return the mean of `usable@5` of each task."""
    return {task: decision_means(own)["usable@5"] for task, own in grouped(decisions, _task).items()}


# Success rates in % on Shopping, Reddit and Map with alpha 0.5 and MMR of 0.7, which a sentence states.
_PAPER = "34.6 / 35.9 / 32.3"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
NOTE = (
    "Ours is the share of steps at which one of five skills offered does exactly what was done next"
    " (usable@5), on recorded runs; the paper's figures (SGDR, arXiv 2606.04391, success rates of GPT-4.1 on"
    " Shopping, Reddit and Map) are of agents that act, and only what its text states is here: its tables say"
    " that alpha 0.5, MMR with 0.7 and windows are best, and SGDR's mean over five domains is 37.5."
)


_METHODS = columns(
    {"Method": "{method}"}, means(MEASURES),
    {
        "95% CI of usable@5": interval("usable@5", ".3f", ("", " to ", "")),
        "{baseline} less it": "{against[difference]:+.3f}", "adjusted p": "{against[adjusted_p]:.4f}",
    },
)  # fmt: skip
_TABLE = columns(means(("usable@5", "action@5")), {"paper: success rate (%)": "{paper}"})
_GRANULARITY = columns({"Skills are": "{granularity}", "Method": "{method}"}, means(("usable@5", "action@5")))


def stream_markdown(found: Row) -> str:
    """Return the whole report, of what the command returns."""
    rows: list[Row] = found["methods"]
    own = found["sgdr"]
    said = (
        f"{found['trajectories']['read']} trajectories, {found['steps']} steps at which skills were offered."
        f" Skills are cut out of: {own['granularity']}; SGDR's M: {own['candidates'] or 'max(3 k, 20)'};"
        f" learned from are runs that succeeded, as {own['judge']} says."
    )
    if warm := found["warm"]:
        said += (
            f" Before the first, {warm['taught']} trajectories of {warm['root']} were learned;"
            f" {warm['left_out']} of the stream are in it and were not."
        )
    shown = {
        heading.format(baseline=rows[0]["method"]) if "{" in heading else heading: form
        for heading, form in _METHODS.items()
    }
    granular = sorted(found["granularity"], key=lambda row: GRANULARITIES.index(row["granularity"]))
    return markdown([
        "# Skills offered along a stream", said, NOTE, Table("Methods", shown, rows),
        _domains("By domain: usable@5", "Method", rows),
        _table("Table 2: task and state", "alpha", rows, ALPHAS.items(), 0.5),
        _table("Table 3: MMR", "relevance weight", rows, RELEVANCE_WEIGHTS.items(), 0.7),
        Table("Table 4: granularity", _GRANULARITY, granular),
    ])  # fmt: skip


def _domains(title: str, method: str, rows: Sequence[Row]) -> Table:
    shown, held = _by_site(rows)
    return Table(title, {method: "{method}", **shown}, held)


def _by_site(rows: Sequence[Row]) -> tuple[dict[str, str], list[Row]]:
    """Return columns of `usable@5` by domain, whose names may hold any sign, and rows that they can read."""
    domains = sorted({domain for row in rows for domain in row["by_domain"]})
    held: list[Row] = [{**row, "shares": [row["by_domain"][d]["usable@5"] for d in domains]} for row in rows]
    return {domain: f"{{shares[{number}]:.3f}}" for number, domain in enumerate(domains)}, held


def _table(
    title: str, what: str, rows: Iterable[Row], lines: Iterable[tuple[float | None, str]], stated: float
) -> Table:
    known = {row["method"]: row for row in rows}
    told = [
        {
            **known[name], "label": "no MMR" if number is None else f"{number:g}",
            "paper": _PAPER if number == stated else "not stated",
        }
        for number, name in lines if name in known
    ]  # fmt: skip
    sites, held = _by_site(told)
    return Table(title, {what: "{label}", **sites, **_TABLE}, held)


def terminal_blocks(found: Row) -> list[Block]:
    """Return what a person sees: measures with 95 % intervals over tasks, by domain, and comparisons."""
    read, rows = found["trajectories"], found["methods"]
    blocks: list[Block] = [
        f"{read['read']} trajectories, {read['successful']} of them successful, {found['steps']} steps"
    ]
    if read["unread"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(read["unread"].items()))
        blocks.append(f"not read: {reasons}")
    if warm := found["warm"]:
        blocks.append(
            f"learned before: {warm['taught']} of {warm['root']}; {warm['left_out']} in it left out"
        )
    over_tasks = {"95 % of usable@5": interval("usable@5", ".3f", ("", " to ", ""))}
    blocks.append(Table("skills offered", columns("method", means(MEASURES), over_tasks), rows))
    blocks.append(_domains("usable@5 by domain", "method", rows))
    for row in rows:
        if against := row["against"]:
            low, high = against["ci95"]
            blocks.append(
                f"{rows[0]['method']} less {row['method']}: {against['difference']:+.3f} over tasks"
                f" [{low:+.3f}, {high:+.3f}], adjusted p {against['adjusted_p']:.4f}"
            )
    return blocks + [f"written: {file}" for file in found.get("report", ())]


def draw_stream(rows: Sequence[Row], path: Path) -> None:
    """Draw `along` of rows of `summarise_runs` into a file of the kind its suffix names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`pip install '.[draw]' in Skillery's folder`).
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (drawing alone needs it)

    sites = sorted(rows[0]["by_domain"]) if rows else []
    figure = Figure(figsize=(7, 4.5 + 3 * len(sites)), layout="constrained")
    every = figure.subplots(1 + len(sites), squeeze=False)[:, 0]
    for axes, site in zip(every, [None, *sites], strict=True):
        for number, row in enumerate(rows):
            curve = row["along"] if site is None else row["by_domain"][site]["along"]
            width, colour = 2.2 if number == 0 else 1.2, _COLOURS[number % len(_COLOURS)]
            axes.plot(*zip(*curve, strict=True), color=colour, linewidth=width, label=row["method"])
        axes.set_xlabel("steps of the stream")
        axes.set_ylabel("mean usable@5 so far")
        axes.set_ylim(0, None)
        axes.grid(visible=True, alpha=0.3)
        axes.set_title(site or "Share of steps with a usable skill among the five offered", fontsize=10)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=4)
    figure.savefig(path, dpi=150)
