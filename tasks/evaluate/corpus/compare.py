"""Compares two corpora: which structural measures differ, and by how much (SkillFlow, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Contrast:
    """One measure in corpora A and B; None if a side has no document of which it is known.

    Attributes:
        measure: A field of `tasks.refine.structure.Quality`, or `any_…`, which is 1 if the field is above 0.
        n_a, n_b: Documents of which it is known.
        u, p: Mann and Whitney's U of A, and its two-sided p-value.
        p_adjusted: `p` by Holm and Bonferroni over all measures compared.
        effect: Cliff's delta, 2 U / (n_a n_b) - 1: 1 if every document of A is above every one of B, -1 if
            every one is below, 0 for no tendency.
    """

    measure: str
    n_a: int
    n_b: int
    median_a: float | None
    median_b: float | None
    mean_a: float | None
    mean_b: float | None
    u: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    effect: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All measures of two corpora, those that differ most certainly first, those not comparable last."""

    documents_a: int
    documents_b: int
    contrasts: tuple[Contrast, ...]


def _with_shares(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns((pl.col(of) > 0).cast(pl.Int64).alias(name) for name, of in SHARES.items())


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _contrast(measure: str, a: pl.Series, b: pl.Series) -> Contrast:
    a, b = a.drop_nulls(), b.drop_nulls()
    contrast = Contrast(
        measure, len(a), len(b), _number(a.median()), _number(b.median()), _number(a.mean()),
        _number(b.mean()),
    )  # fmt: skip
    if not len(a) or not len(b):
        return contrast
    # Ties are many, so the normal approximation, corrected for them, is the test.
    tested = mannwhitneyu(a.to_numpy(), b.to_numpy(), alternative="two-sided", method="asymptotic")
    u, p = float(tested.statistic), float(tested.pvalue)
    return replace(contrast, u=u, p=p if p == p else 1.0, effect=2 * u / (len(a) * len(b)) - 1)  # noqa: PLR0124


def _adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    tested = [c for c in contrasts if c.p is not None]
    values = holm_bonferroni([c.p for c in tested if c.p is not None])
    known = [replace(c, p_adjusted=p) for c, p in zip(tested, values, strict=True)]
    known.sort(key=lambda c: (c.p or 0.0, c.measure))
    return known + [c for c in contrasts if c.p is None]


def compare(a: pl.DataFrame, b: pl.DataFrame) -> Comparison:
    """Compare every structural measure of two corpora (columns: `tasks.refine.structure.QUALITY`).

    Two-sided Mann-Whitney U tests (Mann and Whitney 1947), adjusted by Holm-Bonferroni over all measures that
    both know, as in SkillFlow's figure 2. Measures of the bundle count only documents whose bundle is known.
    The test takes documents as independent: fold copies first.
    """
    whole_a, whole_b = _with_shares(a), _with_shares(b)
    contrasts = [_contrast(m, whole_a[m], whole_b[m]) for m in (*MEASURES, *SHARES)]
    return Comparison(a.height, b.height, tuple(_adjusted(contrasts)))
