"""A measured run of a bench: a long table of values by query, summaries of methods, and paired tests.

The long table has a row for each bench, pool, method, query and measure (`KEYS`), further keys such as a
budget or a stage as columns before the measure, and the value last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from tasks.evaluate.measures.statistics import (
    bootstrap_interval,
    clustered_interval,
    holm_bonferroni,
    paired_bootstrap,
)

KEYS = ("bench", "pool", "method", "query")
T = TypeVar("T")


def long_table(bench: str, rows: pl.DataFrame, measures: Sequence[str]) -> pl.DataFrame:
    """Return the long table of rows that hold a query's measures as columns; a null has no row.

    `rows` have `method`, `query_id`, the measures, and further columns, which become keys; the pool is `all`
    if they name none.
    """
    known = {"bench": pl.lit(bench), "query": pl.col("query_id")}
    if "pool" not in rows.columns:
        known["pool"] = pl.lit("all")
    more = [name for name in rows.columns if name not in {*KEYS, "query_id", *measures}]
    found = rows.with_columns(**known).with_columns(pl.col(list(measures)).cast(pl.Float64))
    return found.unpivot(measures, index=[*KEYS, *more], variable_name="measure").drop_nulls("value")


def write_run(path: Path, tables: Iterable[pl.DataFrame]) -> None:
    """Write long tables as one Parquet file; a key that a table lacks is null there."""
    found = pl.concat(list(tables), how="diagonal")
    keys = [name for name in found.columns if name not in {"measure", "value"}]
    found.select(*keys, "measure", "value").write_parquet(path)


def summarise(values: Mapping[str, Sequence[float]], clusters: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the mean of each measure, and under `ci95` its percentile bootstrap interval.

    By measure there is a value for each query, at least one; with `clusters`, the one of each query, whole
    clusters are drawn.
    """
    return {
        **{measure: float(np.mean(column)) for measure, column in values.items()},
        "ci95": {
            measure: list(
                bootstrap_interval(column) if clusters is None else clustered_interval(column, clusters)
            )
            for measure, column in values.items()
        },
    }


def grouped(items: Iterable[T], name: Callable[[T], str | None]) -> dict[str, list[T]]:
    """Return items by the name of their group, in order of appearance; items without one are left out."""
    groups: dict[str, list[T]] = {}
    for item in items:
        if key := name(item):
            groups.setdefault(key, []).append(item)
    return groups


def latency(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return median and 95th percentile of the times of queries."""
    return {"median_ms": float(np.median(milliseconds)), "p95_ms": float(np.quantile(milliseconds, 0.95))}


class PairedTest(NamedTuple):
    """How a method differs from another on the same queries, by paired bootstrap.

    `difference` is the mean of the first less that of the second, `low` and `high` its 95 % interval, and
    `p_adjusted` is `p` by Holm and Bonferroni over all tests that were made together.
    """

    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float

    def row(self) -> dict[str, Any]:
        """Return `difference`, `ci95`, `p` and `adjusted_p`, as `against` of a method's row."""
        ends = [self.low, self.high]
        return {"difference": self.difference, "ci95": ends, "p": self.p, "adjusted_p": self.p_adjusted}


def paired_tests(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], clusters: Sequence[str] | None = None
) -> list[PairedTest]:
    """Compare pairs of methods, each by the values of two on the same queries; `clusters` as `summarise`."""
    results = [paired_bootstrap(first, second, clusters=clusters) for first, second in pairs]
    adjusted = holm_bonferroni([p for *_, p in results])
    return [PairedTest(*result, p) for result, p in zip(results, adjusted, strict=True)]
