from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from tasks.evaluate.drift import Drift, Thresholds, drift_of, drift_rows, shortcomings
from tasks.evaluate.history import SCHEMA

NIGHT = datetime(2025, 3, 1, 4, 0, tzinfo=UTC)


def history(
    *values: float, measure: str = "hit@10", leg: str = "served", probe: str = "x", noise: float | None = 0.02
) -> pl.DataFrame:
    """Return one measure's history, an evaluation a night."""
    rows = [
        {
            "evaluated_at": NIGHT + timedelta(days=i), "version": f"v-{i}", "probe": probe, "leg": leg,
            "queries": 50, "measure": measure, "value": value,
            "low": None if noise is None else value - noise, "high": None if noise is None else value + noise,
        }
        for i, value in enumerate(values)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA)


def only(frame: pl.DataFrame, compared: int = 7) -> Drift:
    (found,) = drift_of(frame, compared=compared)
    return found


def test_without_a_history_there_is_no_drift() -> None:
    assert drift_of(pl.DataFrame(schema=SCHEMA), compared=7) == []


def test_the_first_evaluation_is_new() -> None:
    assert only(history(0.9)) == Drift("x", "served", "hit@10", 0.9, None, None, "new")


def test_the_last_evaluation_stands_beside_the_median_of_those_before() -> None:
    found = only(history(0.9, 0.1, 0.8, 0.85))

    assert (found.value, found.before) == (0.85, 0.8)
    assert found.change == pytest.approx(0.05)


def test_only_so_many_evaluations_are_looked_back_at() -> None:
    assert only(history(0.1, 0.1, 0.1, 0.9, 0.9), compared=1).before == 0.9


@pytest.mark.parametrize(
    ("values", "noise", "verdict"),
    [
        ((0.9, 0.8), 0.02, "fell"),
        ((0.9, 0.8), 0.2, "steady"),
        ((0.8, 0.9), 0.02, "rose"),
        ((100, 105), None, "steady"),
        ((100, 120), None, "rose"),
        ((100, 80), None, "fell"),
        ((0, 0), None, "steady"),
    ],
    ids=["beyond noise", "within noise", "better", "a little more", "much more", "much less", "none of it"],
)
def test_a_change_counts_beyond_its_noise_and_a_tenth_where_noise_is_not_known(
    values: tuple[float, ...], noise: float | None, verdict: str
) -> None:
    assert only(history(*values, noise=noise)).verdict == verdict


def test_what_is_measured_no_more_is_not_listed() -> None:
    gone = history(0.9).with_columns(leg=pl.lit("dense"))
    found = drift_of(pl.concat([gone, history(0.9, 0.9)]), compared=7)

    assert [d.leg for d in found] == ["served"]


def judged(frame: pl.DataFrame, **thresholds: float) -> list[str]:
    limits = Thresholds(**thresholds)  # type: ignore[arg-type]
    return shortcomings(drift_of(frame, compared=limits.compared), limits)


def test_a_good_steady_measure_falls_short_of_nothing() -> None:
    assert judged(history(0.9, 0.9)) == []


@pytest.mark.parametrize(("leg", "said"), [("served", 1), ("fused", 1), ("dense", 0)])
def test_a_leg_that_answers_users_must_find_enough(leg: str, said: int) -> None:
    found = judged(history(0.3, leg=leg))

    assert len(found) == said
    assert all(line == f"x, {leg}: hit@10 is 0.300, must be at least 0.5" for line in found)


def test_no_leg_may_fall_further_than_allowed_beyond_noise() -> None:
    fell = history(0.9, 0.8, leg="dense", measure="mrr@10")

    assert judged(fell) == ["x, dense: mrr@10 is 0.800, was 0.900: it may fall by 0.05"]
    assert judged(fell, max_fall=0.2) == []
    assert judged(history(0.9, 0.8, leg="dense", noise=0.2)) == []


def test_a_size_may_change_as_it_likes() -> None:
    assert judged(history(1000, 10, measure="rows", leg="skills", probe="size", noise=None)) == []


def test_a_search_may_take_so_long_where_that_is_asked() -> None:
    slow = history(20, 90, measure="p95_ms", leg="search", probe="latency", noise=None)

    assert judged(slow) == []
    assert judged(slow, max_ms=80) == ["latency, search: p95_ms is 90.000, may be at most 80"]


def test_rows_for_a_person_hold_four_digits() -> None:
    (row,) = drift_rows(drift_of(history(0.123456, 0.2345678), compared=7))

    assert (row["value"], row["before"], row["verdict"]) == (0.2346, 0.1235, "rose")
