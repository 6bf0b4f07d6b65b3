from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.evaluate.health.drift import Drift, Thresholds, drift_of, drift_rows, shortcomings, unasked
from tasks.evaluate.health.history import SCHEMA

NIGHT = datetime(2025, 3, 1, 4, 0, tzinfo=UTC)


def history(
    *values: float, measure: str = "hit@10", leg: str = "served", probe: str = "x",
    noise: float | None = 0.02, versions: Sequence[int] = range(99), queries: int = 500,
) -> pl.DataFrame:  # fmt: skip
    """Return one measure's history: an evaluation a night, each of a version of its own unless told."""
    rows = [
        {
            "evaluated_at": NIGHT + timedelta(days=i), "version": f"v-{versions[i]}", "probe": probe,
            "leg": leg, "queries": queries, "measure": measure, "value": value,
            "low": None if noise is None else value - noise, "high": None if noise is None else value + noise,
        }
        for i, value in enumerate(values)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA)


def only(frame: pl.DataFrame, compared: int = 7) -> Drift:
    (found,) = drift_of(frame, last(frame), compared=compared)
    return found


def last(frame: pl.DataFrame) -> datetime:
    found = frame["evaluated_at"].max()
    assert isinstance(found, datetime)
    return found


def test_the_first_evaluation_is_new_and_without_a_history_there_is_no_drift() -> None:
    assert drift_of(pl.DataFrame(schema=SCHEMA), NIGHT, compared=7) == []
    assert only(history(0.9)) == Drift("x", "served", "hit@10", 0.9, None, None, "new")


@pytest.mark.parametrize(
    ("values", "versions", "compared", "before"),
    [
        ((0.9, 0.1, 0.8, 0.85), range(4), 7, 0.8),
        ((0.1, 0.1, 0.1, 0.9, 0.9), range(5), 1, 0.9),
        ((0.9, 0.8, 0.95, 0.95, 0.1, 0.8), (0, 1, 2, 2, 2, 3), 7, 0.8),
        ((0.9, 0.7, 0.7, 0.7), (0, 0, 0, 0), 7, 0.9),
    ],
    ids=["all others", "the last one", "a version counts once", "the only version's first evaluation"],
)
def test_an_evaluation_stands_beside_the_median_of_so_many_other_versions(
    values: tuple[float, ...], versions: Sequence[int], compared: int, before: float
) -> None:
    found = only(history(*values, versions=versions), compared)
    assert (found.value, found.before) == (values[-1], before)
    assert found.change == pytest.approx(values[-1] - before)


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
    found = drift_of(pl.concat([gone, history(0.9, 0.9)]), NIGHT + timedelta(days=1), compared=7)
    assert [d.leg for d in found] == ["served"]


def judged(frame: pl.DataFrame, **thresholds: float) -> list[str]:
    limits = Thresholds(**thresholds)  # type: ignore[arg-type]
    return shortcomings(drift_of(frame, last(frame), compared=limits.compared), limits)


def test_a_good_steady_measure_falls_short_of_nothing_and_a_size_may_change() -> None:
    assert judged(history(0.9, 0.9)) == []
    assert judged(history(1000, 10, measure="rows", leg="skills", probe="size", noise=None)) == []


@pytest.mark.parametrize(("leg", "said"), [("served", 1), ("fused", 1), ("dense", 0)])
def test_a_leg_that_answers_users_must_find_enough(leg: str, said: int) -> None:
    found = judged(history(0.3, leg=leg))
    assert len(found) == said
    assert all(line == f"x, {leg}: hit@10 is 0.300, must be at least 0.5" for line in found)


def test_no_leg_may_fall_further_than_allowed_beyond_noise() -> None:
    fell = history(0.9, 0.8, leg="dense", measure="mrr@10")
    assert judged(fell) == ["x, dense: mrr@10 is 0.800, was 0.900: it may fall by 0.05"]
    assert judged(fell, max_fall=0.2) == []
    assert judged(history(0.9, 0.8, leg="dense", queries=50)) == []
    # Where no probe was missed, a few misses are chance, and many are not.
    assert judged(history(1.0, 0.9, queries=20)) == []
    assert judged(history(1.0, 0.5, queries=20))


def night(of: int, quality: float, random: np.random.Generator, queries: int = 100) -> list[dict[str, Any]]:
    """Return an evaluation's rows, as the four legs that are asked the same fresh sentences have them."""
    alike, rows = random.normal(size=queries), []
    for leg, worse in (("dense", 0.05), ("lexical", 0.03), ("fused", 0.0), ("served", 0.0)):
        luck = 0.6 * alike + 0.8 * random.normal(size=queries)
        found = luck < NormalDist().inv_cdf(quality - worse)
        ranks = found / random.choice([1, 1, 1, 2, 5], queries)
        for measure, value in (("hit@10", found.mean()), ("mrr@10", ranks.mean())):
            rows.append({
                "evaluated_at": NIGHT + timedelta(days=of), "version": f"v-{of}", "probe": "x", "leg": leg,
                "queries": queries, "measure": measure, "value": float(value), "low": None, "high": None,
            })  # fmt: skip
    return rows


def test_of_evaluations_of_equal_quality_fewer_than_one_in_twenty_alarm() -> None:
    random = np.random.default_rng(7)
    nights = [pl.DataFrame(night(i, 0.85, random), schema=SCHEMA) for i in range(120)]
    seen = [pl.concat(nights[i - 7 : i + 1]) for i in range(7, len(nights))]
    assert sum(bool(judged(frame)) for frame in seen) < 0.05 * len(seen)


def test_a_real_fall_always_alarms() -> None:
    random = np.random.default_rng(7)
    for _ in range(20):
        nights = [night(i, 0.95, random) for i in range(7)] + [night(7, 0.55, random)]
        said = judged(pl.DataFrame([row for rows in nights for row in rows], schema=SCHEMA))
        assert any(line.startswith("x, served: hit@10") for line in said)


def test_the_more_measures_are_looked_at_the_less_one_of_them_proves() -> None:
    fell, others = (
        history(0.9, 0.8, queries=120),
        [history(0.9, 0.9, leg=f"leg {i}", queries=120) for i in range(20)],
    )
    assert judged(fell)
    assert judged(pl.concat([fell, *others])) == []


def test_evaluating_a_version_again_and_again_never_absorbs_its_fall() -> None:
    versions = [0, 1, 2, *[3] * 12]
    values = [0.9, 0.9, 0.9, *[0.7] * 12]
    for so_far in range(4, 16):
        assert judged(history(*values[:so_far], versions=versions)), so_far


def test_an_evaluation_is_judged_by_its_own_rows_whatever_the_clocks_of_others_said() -> None:
    # The clock was set back by two days after the evaluation of v-1.
    frame = history(0.55, 0.95, versions=[2, 1])
    (found,) = drift_of(frame, NIGHT, compared=7)
    assert (found.value, found.before) == (0.55, 0.95)
    assert shortcomings([found], Thresholds())


def test_where_no_skill_could_be_asked_for_the_evaluation_says_so() -> None:
    probed = history(0.9, 0.9, leg="dense", probe="sentence to skill")
    sizes = history(9, 9, leg="skills", probe="size", measure="rows", noise=None)
    served = history(0.9, 0.9, probe="sentence to skill")

    def said(*frames: pl.DataFrame) -> int:
        return len(unasked(pl.concat(frames), NIGHT + timedelta(days=1), compared=7))

    assert said(probed, sizes) == 1, "all that were drawn are withheld"
    assert said(served.head(1), sizes) == 1, "the version before could be asked"
    assert said(probed, served, sizes) == 0
    assert said(sizes) == 0, "nothing here ever had a sentence to ask by"


def test_a_search_may_take_so_long_where_that_is_asked() -> None:
    search = history(50, 90, measure="p95_ms", leg="search", probe="latency", noise=None)
    assert judged(search) == []
    assert judged(search, max_ms=80) == ["latency, search: p95_ms is 90, may be at most 80"]


def slow(*p95: float, versions: Sequence[int] = range(99)) -> pl.DataFrame:
    return history(*p95, measure="p95_ms", leg="page", probe="latency", noise=None, versions=versions)


def test_answers_that_take_eight_times_as_long_are_a_finding() -> None:
    said = "latency, page: p95_ms is 1,050, was 130: it may rise to 4 times that"
    assert judged(slow(130, 1050)) == [said]
    assert judged(slow(130, 1050, versions=[0, 0])) == [said]
    assert judged(slow(130, 1050), max_slowdown=10) == []
    assert judged(slow(130, 500)) == [], "of one version nobody knows how much it varies"
    assert only(slow(130, 500)).verdict == "rose"


def test_latency_is_judged_by_how_much_it_varies() -> None:
    wild = slow(40, 400, 90, 130, 300, 60, 200, 700)
    steady = slow(125, 130, 128, 131, 133, 127, 130, 700)
    assert judged(wild) == []
    assert only(wild).verdict == "steady"
    assert judged(steady) == ["latency, page: p95_ms is 700, was 130: it may rise to 2 times that"]
    assert only(steady).noise == 1.1
    # A night on a busy machine hides no rise.
    assert judged(slow(125, 130, 900, 131, 133, 127, 130, 700))


def test_of_nights_of_equal_latency_fewer_than_one_in_twenty_alarm() -> None:
    random = np.random.default_rng(7)
    nights = [
        pl.concat([slow(20, float(20 * random.lognormal(0, 0.25)), versions=[0, i])[1:].with_columns(
            leg=pl.lit(leg), measure=pl.lit(measure), evaluated_at=NIGHT + timedelta(days=i)
        ) for leg in ("search", "page") for measure in ("median_ms", "p95_ms")])
        for i in range(150)
    ]  # fmt: skip
    seen = [pl.concat(nights[i - 7 : i + 1]) for i in range(7, len(nights))]
    assert sum(bool(judged(frame)) for frame in seen) < 0.05 * len(seen)


def test_rows_for_a_person_hold_four_digits() -> None:
    (row,) = drift_rows([only(history(0.123456, 0.2345678))])
    assert (row["value"], row["before"], row["verdict"]) == (0.2346, 0.1235, "rose")
