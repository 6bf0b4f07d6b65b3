"""Variants for SGDR's tables 2 to 4: weights of the task, of MMR, and granularities of skills."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.retrieve.suggest.methods import Method, SgdrSetting, sgdr

# What each row of tables 2 and 3 is called; those that are methods anyway are not measured twice.
ALPHAS: Mapping[float, str] = {
    0.0: "state", 0.3: "sgdr alpha 0.3", 0.5: "sgdr", 0.7: "sgdr alpha 0.7", 1.0: "task",
}  # fmt: skip
RELEVANCE_WEIGHTS: Mapping[float | None, str] = {
    None: "sgdr without MMR", 0.5: "sgdr MMR 0.5", 0.7: "sgdr", 0.9: "sgdr MMR 0.9",
}  # fmt: skip


def variants() -> Mapping[str, Method]:
    """Return the methods of tables 2 and 3 by name."""
    return {
        **{name: sgdr(SgdrSetting(alpha=alpha)) for alpha, name in ALPHAS.items()},
        **{name: sgdr(SgdrSetting(relevance_weight=w)) for w, name in RELEVANCE_WEIGHTS.items()},
    }
