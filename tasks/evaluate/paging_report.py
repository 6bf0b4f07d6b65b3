"""All that is measured of paging on one bench: every method, the default's curve, and the contests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import polars as pl

from tasks.evaluate.paging import Outcome, PagingBench, summarise
from tasks.evaluate.paging_paper import TABLES
from tasks.evaluate.statistics import holm_bonferroni, paired_bootstrap
from tasks.retrieve.page import DEFAULT_METHOD, METHODS

BUDGETS = (0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8)
# The methods of which the picture draws a curve over token budgets.
CURVES = (DEFAULT_METHOD, "skillpager", "chunks", "greedy-graph", "top-k-dependency", "mmr-one-hop")


@dataclass(frozen=True, slots=True)
class Contest:
    """A method against the default at that method's own tokens, query by query.

    `difference` is the default's sufficiency less the method's, with its 95 % interval; `p_adjusted` by
    Holm and Bonferroni over all contests; `default_tokens` and `method_tokens` are means.
    """

    method: str
    sufficient: float
    default_sufficient: float
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float
    method_tokens: float
    default_tokens: float


@dataclass(frozen=True, slots=True)
class PagingReport:
    """What was measured: `rows` as `evaluate_paging` has them, `outcomes` a row a query, and contests."""

    rows: list[dict[str, Any]]
    outcomes: pl.DataFrame
    contests: list[Contest]

    def row(self, method: str, budget: float | None = None) -> dict[str, Any]:
        """Return the row of a method and budget that was measured."""
        return next(r for r in self.rows if r["method"] == method and r["budget"] == budget)


def report_paging(bench: PagingBench, progress: Callable[[int, int], None]) -> PagingReport:
    """Measure every method at its own limit, curves over budgets, and each method against the default.

    Args:
        bench: Documents and queries; its encoder had better be a `Remembering` one.
        progress: Called with the pages done and their total.
    """
    settings: list[tuple[str, float | None]] = [(method, None) for method in METHODS]
    settings += [(method, budget) for method in CURVES for budget in BUDGETS]
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
    rows = [{"method": m, "budget": b, **summarise(found)} for (m, b), found in measured.items()]
    frames = [_frame(m, b, found) for (m, b), found in measured.items()]
    return PagingReport(rows, pl.concat(frames), _contests(contests))


def _rivals() -> list[str]:
    """Return the published methods that the default is compared with, each once."""
    ours = {DEFAULT_METHOD, "full", "nodes", "mmr"}
    named = [row.method for rows in TABLES.values() for row in rows if row.method not in ours]
    return list(dict.fromkeys(named))


def _contests(measured: Sequence[tuple[str, list[Outcome], list[Outcome]]]) -> list[Contest]:
    found = []
    for rival, theirs, ours in measured:
        a = [float(outcome.coverage == 1.0) for outcome in ours]
        b = [float(outcome.coverage == 1.0) for outcome in theirs]
        found.append((rival, a, b, paired_bootstrap(a, b), theirs, ours))
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
        )
        for (rival, a, b, result, theirs, ours), p_adjusted in zip(found, adjusted, strict=True)
    ]


def _frame(method: str, budget: float | None, outcomes: Sequence[Outcome]) -> pl.DataFrame:
    schema = {"breadth": pl.String}
    rows = [asdict(outcome) for outcome in outcomes]
    frame = pl.DataFrame(rows, schema_overrides=schema)
    return frame.select(
        pl.lit(method).alias("method"), pl.lit(budget, dtype=pl.Float64).alias("budget"), pl.all()
    )
