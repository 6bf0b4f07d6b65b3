"""Drift: an evaluation beside those of other versions, and whether it fell below what is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import polars as pl

from tasks.evaluate.health.history import LATENCY
from tasks.evaluate.measures.statistics import holm_bonferroni

_KEY = ["probe", "leg", "measure"]
_STEADY = 0.1  # a measure whose noise is not known is steady within so large a share
_MAD_TO_SIGMA, _DEVIATIONS = 1.4826, 3
# Of fewer versions the noise of latency is not told, but taken for as large as on a machine with other work:
# there the 95th percentile of a page was between 51 and 248 ms for the same version.
_FEWEST, _UNKNOWN_NOISE = 4, 4.0
# Of these, less is worse; what else is measured is shown, and judged by nobody but its reader.
_QUALITY = ("hit@", "mrr@", "sufficient", "coverage")
# The legs that answer users: one of these that finds little is no service, however it was before.
_ANSWERING = ("fused", "served")
# Of evaluations that are as good as those before, at most so many may be taken for worse.
LEVEL = 0.05
_NOT_ASKED = (
    "no skill could be asked for as users ask: none is found by its id, licences withhold all that are "
    "probed, or none has a sentence left to ask for it by"
)
Verdict = Literal["new", "steady", "rose", "fell"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What an evaluation must reach."""

    min_found: float = 0.5  # least hit@10 of the legs that answer users, 0 to 1
    # How far, 0 to 1, a measure of quality may lie below the median of other versions; further is a
    # shortcoming where it is beyond chance too.
    max_fall: float = 0.05
    max_ms: float | None = None  # most milliseconds of the 95th percentile of a search; None: any
    max_slowdown: float = 2.0  # latency may be so many times the median of other versions, at least 1
    compared: int = 7  # other versions that are looked back at


@dataclass(frozen=True, slots=True)
class Drift:
    """One measure now, and how it was: `before` is the median of other versions, None without any.

    `change` is `value - before`. The verdict is `steady` while the 95 % interval of `value` holds `before`; a
    measure without an interval is steady within a tenth. `chance`, of measures of quality alone, is how
    likely quality that is the same would fall so far, corrected for how many measures are looked at. `noise`,
    of latency alone, is the factor within which it is steady, at least 1.1; None of fewer than four versions.
    """

    probe: str
    leg: str
    measure: str
    value: float
    before: float | None
    change: float | None
    verdict: Verdict
    chance: float | None = None
    noise: float | None = None


def drift_of(history: pl.DataFrame, evaluated_at: datetime, *, compared: int) -> list[Drift]:
    """Compare an evaluation with those of `compared` other versions; measures that are gone are not listed.

    A fall's `chance` is a one-sided test of two proportions, pooled and with a correction for continuity: no
    value between 0 and 1 varies more than a share of hits does, so it holds for reciprocal ranks and coverage
    too. The median counts as one evaluation. Chances are corrected by Holm's method: of some twenty measures
    one would seem to fall every other night. It holds however much the measures hang together, as legs that
    are asked the same do, and it alarms as seldom as Bonferroni's but then names more of what fell.

    Latency's noise is three robust standard deviations of the logarithms of what it was before, each 1.4826
    times the median absolute deviation: one night on a busy machine hardly widens it.
    """
    now = history.filter(pl.col("evaluated_at") == evaluated_at)
    earlier = compared_with(history, evaluated_at, compared=compared)
    before = earlier.group_by(_KEY).agg(
        before=pl.col("value").median(), asked=pl.col("queries").median(),
        times=pl.len(), spread=_spread(pl.col("value")),
    )  # fmt: skip
    rows = now.join(before, on=_KEY, how="left", maintain_order="left").to_dicts()
    judged = [i for i, row in enumerate(rows) if is_quality(row["measure"]) and row["before"] is not None]
    chances = dict(zip(judged, holm_bonferroni([_chance(rows[i]) for i in judged]), strict=True))
    return [_drift(row, chances.get(i)) for i, row in enumerate(rows)]


def _spread(values: pl.Expr) -> pl.Expr:
    """Return the robust standard deviation of the logarithms of values."""
    logarithms = values.log()
    return _MAD_TO_SIGMA * (logarithms - logarithms.median()).abs().median()


def compared_with(history: pl.DataFrame, evaluated_at: datetime, *, compared: int) -> pl.DataFrame:
    """Return the rows that an evaluation is compared with: the last of each of `compared` other versions.

    A version that is evaluated every day so never becomes what it is measured by. Where no other version has
    been evaluated, it is compared with the first evaluation of its own.
    """
    own = history.filter(pl.col("evaluated_at") == evaluated_at)["version"].unique()
    rest = history.filter(pl.col("evaluated_at") != evaluated_at)
    others = rest.filter(~pl.col("version").is_in(own.implode()))
    last = others.group_by("version").agg(pl.col("evaluated_at").max()).sort("evaluated_at", "version")
    if last.is_empty():
        return rest.filter(pl.col("evaluated_at") == pl.col("evaluated_at").min())
    return others.join(last.tail(compared), on=["version", "evaluated_at"], how="semi")


def _chance(row: dict[str, Any]) -> float:
    """Return how likely quality that is the same would be measured so much lower than before, or more so."""
    now, before = max(1, row["queries"]), max(1.0, row["asked"])
    share = (row["value"] * now + row["before"] * before) / (now + before)
    spread = math.sqrt(max(0.0, share * (1 - share) * (1 / now + 1 / before)))
    fall = row["before"] - row["value"] - (1 / now + 1 / before) / 2
    return 0.5 * math.erfc(fall / spread / math.sqrt(2)) if spread and fall > 0 else 1.0


def _drift(row: dict[str, Any], chance: float | None) -> Drift:
    before, value = row["before"], row["value"]
    change = None if before is None else value - before
    probe, leg, measure = (str(row[name]) for name in _KEY)
    noise = None
    if probe == LATENCY and before is not None and row["times"] >= _FEWEST:
        noise = max(1 + _STEADY, math.exp(_DEVIATIONS * row["spread"]))
    return Drift(probe, leg, measure, value, before, change, _verdict(row, noise), chance, noise)


def _verdict(row: dict[str, Any], noise: float | None) -> Verdict:
    value, before = row["value"], row["before"]
    if before is None:
        return "new"
    margin = _STEADY * abs(before)
    low, high = (value - margin, value + margin) if row["low"] is None else (row["low"], row["high"])
    low, high = (low, high) if noise is None else (value / noise, value * noise)
    if high < before:
        return "fell"
    return "rose" if low > before else "steady"


def shortcomings(drifts: Sequence[Drift], thresholds: Thresholds) -> list[str]:
    """Return what is worse than the thresholds allow, a line each with its figures; none: all is well."""
    found = []
    for d in drifts:
        name = f"{d.probe}, {d.leg}: {d.measure} is {_said(d, d.value)}"
        if d.measure == "hit@10" and d.leg in _ANSWERING and d.value < thresholds.min_found:
            found.append(f"{name}, must be at least {thresholds.min_found:g}")
        elif d.change is not None and -d.change > thresholds.max_fall and _beyond_chance(d):
            found.append(f"{name}, was {d.before:.3f}: it may fall by {thresholds.max_fall:g}")
        elif _slow(d, thresholds.max_ms):
            found.append(f"{name}, may be at most {thresholds.max_ms:g}")
        elif d.probe == LATENCY and d.before and d.value > d.before * (most := _most(d, thresholds)):
            found.append(f"{name}, was {_said(d, d.before)}: it may rise to {most:.3g} times that")
    return found


def _most(drift: Drift, thresholds: Thresholds) -> float:
    """Return how many times what it was before a latency may be."""
    return max(drift.noise or _UNKNOWN_NOISE, thresholds.max_slowdown)


def _said(drift: Drift, value: float) -> str:
    """Return a share to three decimals, and milliseconds to three digits or whole."""
    if drift.probe == LATENCY:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:.3f}"


def _beyond_chance(drift: Drift) -> bool:
    return drift.chance is not None and drift.chance < LEVEL


def unasked(history: pl.DataFrame, evaluated_at: datetime, *, compared: int) -> list[str]:
    """Return a line where nothing is known of what users get, though there are skills to ask for; else none.

    There are where the tables' own legs were probed, and where the versions compared with were asked: a
    corpus of servers alone, or of skills without a sentence that fits, never was. Arguments as `drift_of`.
    """
    now = history.filter(pl.col("evaluated_at") == evaluated_at)
    known = pl.concat([now, compared_with(history, evaluated_at, compared=compared)])
    to_ask = "sentence to skill" in known["probe"]
    return [_NOT_ASKED] if to_ask and "served" not in now["leg"] else []


def is_quality(measure: str) -> bool:
    """Tell whether less of a measure is worse."""
    return measure.startswith(_QUALITY)


def _slow(drift: Drift, max_ms: float | None) -> bool:
    is_search = (drift.probe, drift.leg, drift.measure) == (LATENCY, "search", "p95_ms")
    return max_ms is not None and is_search and drift.value > max_ms


def drift_rows(drifts: Sequence[Drift]) -> list[dict[str, Any]]:
    """Return drifts as rows of a table a person reads, numbers to four digits."""
    return [
        {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in asdict(drift).items()}
        for drift in drifts
    ]
