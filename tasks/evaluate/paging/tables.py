"""The report on paging as Markdown, in the layout of SkillPager's tables, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from tasks.evaluate.paging.paper import TABLES, PaperRow
from tasks.evaluate.paging.report import CURVES, GROUP_BUDGETS, PagingReport
from tasks.retrieve.baselines.skillpager_settings import OpenSettings, Setting, settings_of
from tasks.retrieve.page import DEFAULT_METHOD

EVIDENCE = (
    "Judged by evidence: a context suffices when it holds every item of evidence, which is stricter than the"
    " paper's judge, a language model. The paper's figures are of its own skills and queries."
)
_PAPER_COLUMNS = (
    "Method", "Suff. (%)", "95% CI", "95% CI by document", "Avg. units", "Token red. (%)",
    "Red. against nodes (%)", "paper: Suff.", "paper: 95% CI", "paper: nodes", "paper: token red.",
)  # fmt: skip
_MARK = "†"
UNITS = "Units are nodes; of the method that picks chunks, chunks."


def paging_markdown(report: PagingReport) -> str:
    """Return the whole report as one Markdown text."""
    parts = ["# Paging", judge_note(report), *notes_of(report.rows, report.fitted)]
    for title, rows in TABLES.items():
        parts += [f"## {title}", table(_PAPER_COLUMNS, _paper_rows(report, rows))]
    if report.judged:
        parts += ["## Evidence and the language model", *judges_markdown(report.judged, report.judge)]
    parts += ["## Over token budgets", _curves(report)]
    parts += [f"## {DEFAULT_METHOD} against each method at that method's own tokens", *_contests(report)]
    parts += ["## By breadth", _groups(report.rows, "by_breadth")]
    parts += ["## By size of the document", _groups(report.rows, "by_size")]
    if report.probes:
        parts += ["## Long documents: probes, no requests of people", PROBES]
        parts += [_groups(report.probes, "by_size")]
    parts += ["## Latency", _latency(report)]
    parts += ["## What the paper leaves open", _settings(report.skillpager)]
    return "\n\n".join(parts) + "\n"


PROBES = (
    "A probe is made of a section's own words, without a language model: its heading and the rarest words of"
    " a sentence ask for it, and three of its passages are the evidence. That is easier than what people ask,"
    " so compare methods and sizes here, not these figures with those above."
)


def judge_note(report: PagingReport) -> str:
    """Return who judged which part of the report."""
    spoke = report.judge["spoke"]
    if spoke == "evidence":
        return EVIDENCE
    model = f"{report.judge['model']} by {report.judge['prompt']}, {report.judge['votes']} votes"
    if spoke == "both":
        return f"{EVIDENCE} At each method's own limit {model}, judged too."
    return (
        f"Tables 1 to 7: judged by a language model, {model}, as the paper's are, which are of its own skills"
        " and queries. All else is judged by evidence: a context suffices when it holds every item of it."
    )


def notes_of(rows: Iterable[dict[str, Any]], fitted: int) -> list[str]:
    """Return what to know of the figures: what units are, and which of them are by held-out scorers.

    `fitted` is the number of documents that the packaged scorer was fitted on.
    """
    chunks = any(row["method"] == "chunks" for row in rows)
    held_out = (
        f"{_MARK} Held out: the scorer of {DEFAULT_METHOD} was fitted on {fitted} of these documents; each of"
        " them is paged by a scorer that never saw it."
    )
    return [UNITS] * chunks + [held_out] * bool(fitted)


def judges_markdown(rows: Sequence[dict[str, Any]], judge: dict[str, Any]) -> list[str]:
    """Return a table of what the language model says beside the evidence, and one of how judges agree."""
    columns = ("Method", "Budget", "judged", "LLM: suff. (%)", "95% CI", "votes", "unjudged")
    lines = [
        [
            row["method"],
            _budget(row["budget"]),
            row["llm"]["queries"],
            _maybe(row["llm"]["sufficient"]),
            "" if row["llm"]["ci95"] is None else _interval(row["llm"]["ci95"]),
            ", ".join(f"{pattern}: {n}" for pattern, n in row["llm"]["patterns"].items()),
            row["llm"]["unjudged"],
        ]
        for row in rows
    ]
    return [table(columns, lines), *agreement_markdown(judge)]


def agreement_markdown(judge: dict[str, Any]) -> list[str]:
    """Return a table of how judges agree; none where one judge spoke alone."""
    columns = ("Judges", "Votes", "Cases", "Agreement (%)", "Cohen's kappa", "first alone", "second alone")
    lines: list[list[object]] = []
    for names, found in judge.get("agreement", {}).items():
        for pattern, group in {"all": found, **found.get("by_pattern", {})}.items():
            kappa = "" if group["kappa"] is None else f"{group['kappa']:.3f}"
            share = _percent(group["raw"])
            named = names.replace("_", ", ")
            lines.append([named, pattern, group["cases"], share, kappa, group["only_a"], group["only_b"]])
    return [table(columns, lines)] if lines else []


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _paper_rows(report: PagingReport, rows: Iterable[PaperRow]) -> list[list[str]]:
    found = [(row, report.paper_row(row.method)) for row in rows]
    return [_paper_row(row, ours) for row, ours in found if ours is not None]


def _paper_row(row: PaperRow, ours: dict[str, Any]) -> list[str]:
    return [
        _marked(row.label, ours["held_out"]),
        _percent(ours["sufficient"]),
        _interval(ours["ci95"]["sufficient"]),
        _interval(ours["ci95_clustered"]["sufficient"]),
        f"{ours['units']:.2f}",
        _percent(ours["token_reduction"]),
        _percent(ours["token_reduction_nodes"]),
        _maybe(row.sufficient, 1),
        "" if row.interval is None else f"[{row.interval[0]:.2f}, {row.interval[1]:.2f}]",
        _maybe(row.nodes, 1),
        _maybe(row.reduction, 1),
    ]


def _curves(report: PagingReport) -> str:
    columns = (
        "Method",
        "Budget",
        "Suff. (%)",
        "95% CI",
        "95% CI by document",
        "Coverage (%)",
        "Token red. (%)",
    )
    rows = [
        [
            _marked(row["method"], row["held_out"]),
            _budget(row["budget"]),
            _percent(row["sufficient"]),
            _interval(row["ci95"]["sufficient"]),
            _interval(row["ci95_clustered"]["sufficient"]),
            _percent(row["coverage"]),
            _percent(row["token_reduction"]),
        ]
        for row in report.rows
        if row["method"] in CURVES
    ]
    return table(columns, rows)


def _contests(report: PagingReport) -> list[str]:
    columns = (
        "Method", "Suff. (%)", f"{DEFAULT_METHOD} at its tokens", "difference", "95% CI",
        "95% CI by document", "p", "p (Holm)", "tokens", f"{DEFAULT_METHOD}'s tokens",
    )  # fmt: skip
    rows = [
        [
            c.method,
            _percent(c.sufficient),
            _marked(_percent(c.default_sufficient), c.held_out),
            _percent(c.difference),
            _interval([c.low, c.high]),
            _interval([c.low_clustered, c.high_clustered]),
            f"{c.p:.4f}",
            f"{c.p_adjusted:.4f}",
            f"{c.method_tokens:.0f}",
            f"{c.default_tokens:.0f}",
        ]
        for c in report.contests
    ]
    note = (
        "Each request is paged again under the tokens that the method took for it. Paired bootstrap over"
        " queries, 10,000 resamples, seed 42; p two-sided, by Holm and Bonferroni over all rows; by evidence."
    )
    return [note, table(columns, rows)]


def _groups(rows: Sequence[dict[str, Any]], by: str) -> str:
    columns = (
        "Method",
        "Budget",
        "Group",
        "Queries",
        "Suff. (%)",
        "95% CI",
        "Coverage (%)",
        "Token red. (%)",
    )
    lines = [
        [
            _marked(row["method"], row["held_out"]),
            _budget(row["budget"]),
            name,
            group["queries"],
            _percent(group["sufficient"]),
            _interval(group["ci95"]["sufficient"]),
            _percent(group["coverage"]),
            _percent(group["token_reduction"]),
        ]
        for row in rows
        if row["method"] in CURVES and row["budget"] in GROUP_BUDGETS
        for name, group in row[by].items()
    ]
    return table(columns, lines)


def _marked(text: str, held_out: int) -> str:
    return f"{text} {_MARK}" if held_out else text


def _budget(budget: float | None) -> str:
    return "own limit" if budget is None else f"{budget:g}"


def _maybe(value: float | None, factor: float = 100) -> str:
    return "" if value is None else f"{factor * value:.2f}"


def _latency(report: PagingReport) -> str:
    rows = [
        [r["method"], f"{r['median_ms']:.1f}", f"{r['p95_ms']:.1f}"] for r in report.rows if not r["budget"]
    ]
    return table(("Method", "median ms", "95th percentile ms"), rows) + (
        "\n\nOne page, its query's encoding included, documents prepared before."
    )


def _settings(given: OpenSettings) -> str:
    names = [f.name for f in fields(Setting)]
    methods: list[list[Any]] = [[m, *(getattr(s, n) for n in names)] for m, s in settings_of(given).items()]
    open_settings = [[f.name, _spoken(getattr(given, f.name))] for f in fields(given)]
    notes = (
        "`k` None: 20 up to 100 nodes of the document, else 60, for chunks too. At a budget of tokens neither"
        " `k` nor `stop_below` nor `least_gain` ends a method, and a walk that has nowhere to go enters anew:"
        " each fills the budget, so that curves compare."
    )
    return "\n\n".join(
        [table(("Setting", "Value"), open_settings), notes, table(("Method", *names), methods)]
    )


def _spoken(value: object) -> object:
    return ", ".join(value) if isinstance(value, tuple) else value


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _interval(bounds: Sequence[float]) -> str:
    return f"[{100 * bounds[0]:.2f}, {100 * bounds[1]:.2f}]"
