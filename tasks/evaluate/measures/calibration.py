"""Calibration: whether answers are as often right as their confidence says, in ten bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

BINS = 10


def calibration(confidences: Sequence[float], right: Sequence[bool]) -> list[dict[str, float]]:
    """Return the bins of a reliability diagram, 10 of equal width, without those that have no answer.

    Args:
        confidences: In [0, 1]; one on an edge belongs to the bin above it, 1 to the last.
        right: Whether each answer is right.

    Returns:
        A row for each bin: `from` (its lower edge), `n`, mean `confidence`, and `accuracy`.
    """
    members: dict[int, list[tuple[float, bool]]] = {}
    for pair in zip(confidences, right, strict=True):
        members.setdefault(min(int(pair[0] * BINS), BINS - 1), []).append(pair)
    return [_bin(place / BINS, rows) for place, rows in sorted(members.items())]


def calibration_by_count(confidences: Sequence[float], right: Sequence[bool]) -> list[dict[str, float]]:
    """Return as `calibration` does 10 bins of equal count, or one less or more; `from` is a bin's least one.

    Equal confidences may lie in two bins, in their order; of fewer than 10 answers each has a bin.
    """
    pairs = sorted(zip(confidences, right, strict=True), key=lambda pair: pair[0])
    parts = np.array_split(np.arange(len(pairs)), BINS)
    return [_bin(pairs[part[0]][0], [pairs[i] for i in part]) for part in parts if len(part)]


def calibration_error(bins: Sequence[Mapping[str, float]]) -> float:
    """Return the expected calibration error (Guo et al. 2017, equation 3): mean gap, weighed by answers."""
    total = sum(row["n"] for row in bins)
    return sum(row["n"] * abs(row["accuracy"] - row["confidence"]) for row in bins) / max(total, 1)


def _bin(least: float, rows: Sequence[tuple[float, bool]]) -> dict[str, float]:
    confidence, accuracy = fmean(c for c, _ in rows), fmean(r for _, r in rows)
    return {"from": least, "n": len(rows), "confidence": confidence, "accuracy": accuracy}
