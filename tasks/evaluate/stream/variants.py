"""Variants for SGDR's tables 2 to 4: weights of the task, of MMR, and granularities of skills."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.retrieve.suggest.methods import Method, SgdrSetting, sgdr

ALPHAS = (0.0, 0.3, 0.5, 0.7, 1.0)
RELEVANCE_WEIGHTS = (None, 0.5, 0.7, 0.9)
GRANULARITIES = ("window", "trajectory", "action")


def alpha_name(alpha: float) -> str:
    """Return what the method with that weight of the task is called."""
    return f"sgdr alpha {alpha:g}"


def mmr_name(relevance_weight: float | None) -> str:
    """Return what the method with that weight of MMR is called."""
    return "sgdr without MMR" if relevance_weight is None else f"sgdr MMR {relevance_weight:g}"


def variants() -> Mapping[str, Method]:
    """Return the methods of tables 2 and 3 by name."""
    return {
        **{alpha_name(alpha): sgdr(SgdrSetting(alpha=alpha)) for alpha in ALPHAS},
        **{mmr_name(weight): sgdr(SgdrSetting(relevance_weight=weight)) for weight in RELEVANCE_WEIGHTS},
    }
