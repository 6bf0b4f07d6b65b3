"""The report on paging as Markdown, in the layout of SkillPager's tables, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from tasks.evaluate.paging_paper import TABLES, PaperRow
from tasks.evaluate.paging_report import CURVES, PagingReport
from tasks.retrieve.paging_published import SETTINGS, Setting

JUDGE = (
    "Judged by evidence: a context suffices when it holds every item of evidence, which is stricter than the"
    " paper's judge, a language model. The paper's figures are of its own skills and queries."
)
_PAPER_COLUMNS = (
    "Method", "Suff. (%)", "95% CI", "95% CI by document", "Avg. nodes", "Token red. (%)",
    "Red. against nodes (%)", "paper: Suff.", "paper: 95% CI", "paper: nodes", "paper: token red.",
)  # fmt: skip


def paging_markdown(report: PagingReport) -> str:
    """Return the whole report as one Markdown text."""
    parts = ["# Paging", JUDGE]
    for title, rows in TABLES.items():
        parts += [f"## {title}", table(_PAPER_COLUMNS, [_paper_row(report, row) for row in rows])]
    parts += ["## Over token budgets", _curves(report)]
    parts += ["## At each method's own tokens", _contests(report)]
    parts += ["## By breadth and by size", _groups(report)]
    parts += ["## Latency", _latency(report)]
    parts += ["## What the paper leaves open", _settings()]
    return "\n\n".join(parts) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _paper_row(report: PagingReport, row: PaperRow) -> list[str]:
    ours = report.row(row.method)
    return [
        row.label,
        _percent(ours["sufficient"]),
        _interval(ours["ci95"]["sufficient"]),
        _interval(ours["ci95_clustered"]["sufficient"]),
        f"{ours['nodes']:.2f}",
        _percent(ours["token_reduction"]),
        _percent(ours["token_reduction_nodes"]),
        "" if row.sufficient is None else f"{row.sufficient:.2f}",
        "" if row.interval is None else f"[{row.interval[0]:.2f}, {row.interval[1]:.2f}]",
        "" if row.nodes is None else f"{row.nodes:.2f}",
        "" if row.reduction is None else f"{row.reduction:.2f}",
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
            row["method"],
            "" if row["budget"] is None else f"{row['budget']:g}",
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


def _contests(report: PagingReport) -> str:
    columns = (
        "Method", "Suff. (%)", "default at its tokens", "difference", "95% CI", "p", "p (Holm)",
        "tokens", "default's tokens",
    )  # fmt: skip
    rows = [
        [
            c.method,
            _percent(c.sufficient),
            _percent(c.default_sufficient),
            _percent(c.difference),
            _interval([c.low, c.high]),
            f"{c.p:.4f}",
            f"{c.p_adjusted:.4f}",
            f"{c.method_tokens:.0f}",
            f"{c.default_tokens:.0f}",
        ]
        for c in report.contests
    ]
    return table(columns, rows)


def _groups(report: PagingReport) -> str:
    columns = ("Method", "Budget", "Group", "Queries", "Suff. (%)", "Coverage (%)", "Token red. (%)")
    rows = [
        [
            row["method"],
            "" if row["budget"] is None else f"{row['budget']:g}",
            name,
            group["queries"],
            _percent(group["sufficient"]),
            _percent(group["coverage"]),
            _percent(group["token_reduction"]),
        ]
        for row in report.rows
        if row["method"] in CURVES and row["budget"] in (None, 0.35, 0.4, 0.5)
        for name, group in {**row["by_breadth"], **row["by_size"]}.items()
    ]
    return table(columns, rows)


def _latency(report: PagingReport) -> str:
    rows = [
        [r["method"], f"{r['median_ms']:.1f}", f"{r['p95_ms']:.1f}"] for r in report.rows if not r["budget"]
    ]
    return table(("Method", "median ms", "95th percentile ms"), rows) + (
        "\n\nOne page, its query's encoding included, documents prepared before."
    )


def _settings() -> str:
    names = [f.name for f in fields(Setting)]
    rows: list[list[Any]] = [[m, *(getattr(s, n) for n in names)] for m, s in SETTINGS.items()]
    return table(("Method", *names), rows) + (
        "\n\n`chunks`: 256 tokens each, without overlap. `k` None: 20 up to 100 nodes, else 60."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _interval(bounds: Sequence[float]) -> str:
    return f"[{100 * bounds[0]:.2f}, {100 * bounds[1]:.2f}]"
