"""The report of paging on one bench: every method, curves over budgets, contests, breadths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

import polars as pl

from tasks.evaluate.measures.statistics import clustered_interval, holm_bonferroni, paired_bootstrap
from tasks.evaluate.paging.bench import PagingBench, Setting, measure, rows_of
from tasks.evaluate.paging.judged import Speaker
from tasks.evaluate.paging.outcomes import Outcome
from tasks.evaluate.paging.paper import TABLES
from tasks.retrieve.baselines.skillpager_settings import OPEN_SETTINGS, OpenSettings
from tasks.retrieve.page import DEFAULT_METHOD, METHODS

BUDGETS = (0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8)
# The methods of which the picture draws a curve over token budgets.
CURVES = (DEFAULT_METHOD, "skillpager", "chunks", "greedy-graph", "top-k-dependency", "mmr-one-hop")
# The budgets at which groups of queries, and probes, are looked at.
GROUP_BUDGETS = (None, 0.35, 0.5)
OWN_LIMITS: tuple[Setting, ...] = tuple((method, None) for method in METHODS)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Contest:
    """A method against the default at that method's own tokens, query by query.

    `difference` is the default's sufficiency less the method's, with its 95 % interval over queries, and
    over documents (`low_clustered`, `high_clustered`); `p_adjusted` by Holm and Bonferroni over all contests;
    `default_tokens` and `method_tokens` are means; `held_out` are the queries as `summarise` counts them.
    """

    method: str
    sufficient: float
    default_sufficient: float
    difference: float
    low: float
    high: float
    p: float
    low_clustered: float
    high_clustered: float
    p_adjusted: float
    method_tokens: float
    default_tokens: float
    held_out: int


@dataclass(slots=True)
class PagingReport:
    """What was measured."""

    rows: list[dict[str, Any]]  # as `evaluate_paging` has them, judged by evidence
    outcomes: pl.DataFrame  # a row a query and setting
    contests: list[Contest]  # the default against each published method; by evidence
    # The outcomes at each method's own limit, with contexts if the bench keeps them.
    measured: dict[Setting, list[Outcome]]
    # Rows on probes of long documents; none where no corpus was given.
    probes: list[dict[str, Any]] = field(default_factory=list)
    # Documents of this bench that the packaged scorer was fitted on: held-out scorers page them.
    fitted: int = 0
    skillpager: OpenSettings = OPEN_SETTINGS
    # Rows at each method's own limit with what a language model says under `llm`; none without one.
    judged: list[dict[str, Any]] = field(default_factory=list)
    # Who judged, and how judges agree, as `flows.commands.judge` has it.
    judge: dict[str, Any] = field(default_factory=lambda: {"spoke": "evidence"})

    def row(self, method: str, budget: float | None = None) -> dict[str, Any]:
        """Return the row of a method and budget that was measured, judged by evidence."""
        return next(r for r in self.rows if r["method"] == method and r["budget"] == budget)

    def paper_row(self, method: str) -> dict[str, Any] | None:
        """Return the row of a method at its own limit by the judge who speaks; None: it judged none of it."""
        speaker: Speaker = self.judge["spoke"]
        if speaker != "llm":
            return self.row(method)
        return next((r for r in self.judged if r["method"] == method), None)

    def all_rows(self) -> list[dict[str, Any]]:
        """Return a row for each method and budget, each with its `judge`."""
        if self.judge["spoke"] == "evidence":
            return [{**row, "judge": "evidence"} for row in self.rows]
        spoken = "evidence" if self.judge["spoke"] == "both" else self.judge["model"]
        curves = [{**row, "judge": "evidence"} for row in self.rows if row["budget"] is not None]
        return [{**row, "judge": spoken} for row in self.judged] + curves


def report_paging(bench: PagingBench, progress: Progress) -> PagingReport:
    """Measure every method at its own limit, curves over budgets, and each method against the default.

    Args:
        bench: Documents and queries; its encoder had better be a `Remembering` one.
        progress: Called with the pages done and their total.
    """
    settings = [*OWN_LIMITS, *((method, budget) for method in CURVES for budget in BUDGETS)]
    rivals = _rivals()
    steps = count(1)
    total = len(bench.queries) * (len(settings) + len(rivals))

    def step() -> None:
        progress(next(steps), total)

    measured = {setting: bench.measured(*setting, step=step) for setting in settings}
    contests = []
    for rival in rivals:
        theirs = measured[rival, None]
        budgets = [float(max(outcome.tokens, 2)) for outcome in theirs]
        contests.append((rival, theirs, bench.measured(DEFAULT_METHOD, budgets, step=step)))
    frames = [outcome_frame(m, b, found) for (m, b), found in measured.items()]
    own = {setting: measured[setting] for setting in OWN_LIMITS}
    return PagingReport(
        rows_of(measured),
        pl.concat(frames),
        _contests(contests),
        own,
        fitted=len(bench.scorers),
        skillpager=bench.skillpager,
    )


def report_probes(report: PagingReport, bench: PagingBench, progress: Progress) -> None:
    """Add to a report how the methods with curves fare on probes, which are in no other figure."""
    measured = measure(bench, [(m, b) for m in CURVES for b in GROUP_BUDGETS], progress)
    report.probes = rows_of(measured)
    frames = [outcome_frame(m, b, found) for (m, b), found in measured.items()]
    report.outcomes = pl.concat([report.outcomes, *frames])


def _rivals() -> list[str]:
    """Return the published methods that the default is compared with, each once."""
    ours = {DEFAULT_METHOD, "full", "nodes", "mmr"}
    named = [row.method for rows in TABLES.values() for row in rows if row.method not in ours]
    return list(dict.fromkeys(named))


def _contests(measured: Sequence[tuple[str, list[Outcome], list[Outcome]]]) -> list[Contest]:
    found = []
    for rival, theirs, ours in measured:
        a = [float(outcome.sufficient) for outcome in ours]
        b = [float(outcome.sufficient) for outcome in theirs]
        differences = [x - y for x, y in zip(a, b, strict=True)]
        clustered = clustered_interval(differences, [outcome.doc_id for outcome in ours])
        found.append((rival, a, b, (*paired_bootstrap(a, b), *clustered), theirs, ours))
    adjusted = holm_bonferroni([result[3] for _, _, _, result, _, _ in found])
    return [
        Contest(
            rival,
            sum(b) / len(b),
            sum(a) / len(a),
            *result,
            p_adjusted,
            sum(outcome.tokens for outcome in theirs) / len(theirs),
            sum(outcome.tokens for outcome in ours) / len(ours),
            sum(outcome.held_out for outcome in ours),
        )
        for (rival, a, b, result, theirs, ours), p_adjusted in zip(found, adjusted, strict=True)
    ]


def outcome_frame(method: str, budget: float | None, outcomes: Sequence[Outcome]) -> pl.DataFrame:
    """Return a row a query, by evidence alone; contexts would be most of the file."""
    schema = {"breadth": pl.String, "chunks": pl.Int64}
    rows = [asdict(outcome) for outcome in outcomes]
    frame = pl.DataFrame(rows, schema_overrides=schema).drop("context", "verdict")
    return frame.select(
        pl.lit(method).alias("method"), pl.lit(budget, dtype=pl.Float64).alias("budget"), pl.all()
    )
