"""Compares two corpora: which structural measures differ, and by how much (SkillFlow, section 4.3)."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from scipy.stats import mannwhitneyu

from tasks.evaluate.measures.statistics import holm_bonferroni
from tasks.refine.structure import MEASURES

# Shares that the paper gives beside medians: most skills bundle no script, so both medians are 0.
SHARES = {
    "any_code": "code_blocks", "any_ordered_list": "ordered_items", "any_script_mention": "script_mentions",
    "any_reference_mention": "reference_mentions", "any_script": "scripts",
    "any_reference_document": "reference_documents",
}  # fmt: skip


Row = dict[str, Any]


def compare(a: pl.DataFrame, b: pl.DataFrame) -> Row:
    """Compare every structural measure of two corpora (columns: `tasks.refine.structure.QUALITY`).

    Two-sided Mann-Whitney U tests (Mann and Whitney 1947), adjusted by Holm-Bonferroni over all measures that
    both know, as in SkillFlow's figure 2. Measures of the bundle count only documents whose bundle is known.
    The test takes documents as independent: fold copies first.

    Returns:
        `documents_a` and `documents_b`, and `contrasts`, those that differ most certainly first, those not
        comparable last. Each has `measure`, a field of `Quality`, or `any_...`, which is 1 if the field is
        above 0; of either side the documents of which it is known (`n_a`), and their `median_a` and `mean_a`;
        Mann and Whitney's `u` of A, its two-sided `p`, `p_adjusted` over all measures, and `effect`, Cliff's
        delta, 2 U / (n_a n_b) - 1: 1 if every document of A is above every one of B, -1 if every one is
        below. What nothing is known of is None.
    """
    whole_a, whole_b = _with_shares(a), _with_shares(b)
    contrasts = [_contrast(m, whole_a[m], whole_b[m]) for m in (*MEASURES, *SHARES)]
    tested = [row for row in contrasts if row["p"] is not None]
    for row, p in zip(tested, holm_bonferroni([row["p"] for row in tested]), strict=True):
        row["p_adjusted"] = p
    tested.sort(key=lambda row: (row["p"], row["measure"]))
    rest = [row for row in contrasts if row["p"] is None]
    return {"documents_a": a.height, "documents_b": b.height, "contrasts": [*tested, *rest]}


def _with_shares(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns((pl.col(of) > 0).cast(pl.Int64).alias(name) for name, of in SHARES.items())


def _contrast(measure: str, a: pl.Series, b: pl.Series) -> Row:
    a, b = a.drop_nulls(), b.drop_nulls()
    row: Row = {
        "measure": measure, "n_a": len(a), "n_b": len(b), "median_a": a.median(), "median_b": b.median(),
        "mean_a": a.mean(), "mean_b": b.mean(), **dict.fromkeys(("u", "p", "p_adjusted", "effect")),
    }  # fmt: skip
    if len(a) and len(b):
        # Ties are many, so the normal approximation, corrected for them, is the test.
        tested = mannwhitneyu(a.to_numpy(), b.to_numpy(), alternative="two-sided", method="asymptotic")
        u, p = float(tested.statistic), float(tested.pvalue)
        row |= {"u": u, "p": 1.0 if math.isnan(p) else p, "effect": 2 * u / (len(a) * len(b)) - 1}
    return row
