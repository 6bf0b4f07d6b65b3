from __future__ import annotations

import math

import polars as pl
import pytest

from storage.schemas import DOCUMENTS
from tasks.evaluate.corpus.compare import SHARES, Contrast, compare
from tasks.evaluate.measures.statistics import holm_bonferroni
from tasks.refine.structure import MEASURES, QUALITY, quality_frame

CODE = "# A\n\nRun it.\n\n```bash\nmake knots\nmake bends\n```\n"
PROSE = "# A\n\n1. Take a rope.\n2. Tie it.\n3. Pull.\n"
PLAIN = "Nothing but prose here."


def corpus(*bodies: str, scripts: int | None = None) -> pl.DataFrame:
    files = (
        None
        if scripts is None
        else [{"path": f"scripts/{i}.sh", "size": 1, "sha256": "a"} for i in range(scripts)]
    )
    columns = {
        "doc_id": [f"o/{i}" for i in range(len(bodies))],
        "body": bodies,
        "files": [files] * len(bodies),
    }
    schema = {name: DOCUMENTS[name] for name in columns}
    return quality_frame(pl.DataFrame(columns, schema=schema))


def contrast(a: pl.DataFrame, b: pl.DataFrame, measure: str) -> Contrast:
    return next(c for c in compare(a, b).contrasts if c.measure == measure)


def test_every_measure_and_share_is_compared_once() -> None:
    compared = [c.measure for c in compare(corpus(CODE), corpus(PROSE)).contrasts]
    assert sorted(compared) == sorted([*MEASURES, *SHARES])


def test_medians_and_means_stand_side_by_side() -> None:
    found = contrast(corpus(CODE, PLAIN, PLAIN), corpus(PROSE, PROSE), "ordered_items")
    assert (found.n_a, found.n_b) == (3, 2)
    assert (found.median_a, found.median_b, found.mean_a, found.mean_b) == (0, 3, 0, 3)


def test_u_and_effect_are_those_of_counted_pairs() -> None:
    # Of the nine pairs A is above B in six (2 and 4 against 0, 0 and 1) and ties in one of the others.
    a = corpus(*["```\n" + "x\n" * n + "```" if n else PLAIN for n in (0, 2, 4)]).with_columns(
        words=pl.Series([0, 2, 4])
    )
    b = a.with_columns(words=pl.Series([0, 1, 2]))
    found = contrast(a, b, "words")
    assert found.u == 0.5 + (2 + 0.5) + 3
    assert found.effect == pytest.approx(2 * 6.0 / 9 - 1)


def test_p_is_two_sided_by_the_normal_approximation() -> None:
    a = pl.DataFrame(
        {"doc_id": [str(i) for i in range(20)], **{m: range(20) for m in MEASURES}}, schema=QUALITY
    )
    b = a.with_columns(words=pl.Series(range(10, 30)))
    found, mirrored = contrast(a, b, "words"), contrast(b, a, "words")
    # Untied by hand: mean n²/2, variance n²(2n + 1)/12, half a step of continuity; ten ties of two.
    ties = 10 * (2**3 - 2)
    spread = math.sqrt(400 / 12 * (41 - ties / (40 * 39)))
    z = (abs((found.u or 0) - 200) - 0.5) / spread
    assert found.p == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert mirrored.p == pytest.approx(found.p)
    assert mirrored.effect == pytest.approx(-(found.effect or 0))


def test_p_values_are_adjusted_over_the_measures_that_both_know() -> None:
    comparison = compare(corpus(*[CODE] * 8), corpus(*[PROSE] * 9))
    tested = [c for c in comparison.contrasts if c.p is not None]
    assert len(tested) == len(MEASURES) + len(SHARES) - 5
    assert [c.p_adjusted for c in tested] == holm_bonferroni([c.p or 0.0 for c in tested])
    assert [c.p for c in tested] == sorted(c.p or 0.0 for c in tested)


def test_an_unknown_bundle_is_not_compared_and_comes_last() -> None:
    comparison = compare(corpus(CODE, scripts=2), corpus(PROSE))
    found = comparison.contrasts[-5:]
    assert {c.measure for c in found} == {
        "bundled_files", "scripts", "reference_documents", "any_script", "any_reference_document",
    }  # fmt: skip
    assert all((c.p, c.p_adjusted, c.effect, c.median_b) == (None, None, None, None) for c in found)
    assert next(c for c in found if c.measure == "scripts").median_a == 2


def test_bundles_are_compared_where_both_are_known() -> None:
    found = contrast(corpus(*[CODE] * 6, scripts=2), corpus(*[CODE] * 6, scripts=0), "any_script")
    assert (found.mean_a, found.mean_b, found.effect) == (1, 0, 1)


def test_a_corpus_does_not_differ_from_itself() -> None:
    same = corpus(CODE, PROSE, PLAIN)
    assert {(c.effect, c.p) for c in compare(same, same).contrasts if c.p is not None} == {(0, 1)}
