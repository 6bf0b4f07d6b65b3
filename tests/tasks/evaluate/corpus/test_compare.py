from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import DOCUMENTS
from tasks.evaluate.corpus.compare import SHARES, compare
from tasks.evaluate.corpus.skill_sample import namespace_of, served_skill_ids, served_skills, stratified
from tasks.evaluate.measures.statistics import holm_bonferroni
from tasks.refine.structure import MEASURES, QUALITY, quality_frame
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

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


def contrast(a: pl.DataFrame, b: pl.DataFrame, measure: str) -> dict[str, Any]:
    return next(c for c in compare(a, b)["contrasts"] if c["measure"] == measure)


def test_every_measure_and_share_is_compared_once() -> None:
    compared = [c["measure"] for c in compare(corpus(CODE), corpus(PROSE))["contrasts"]]
    assert sorted(compared) == sorted([*MEASURES, *SHARES])


def test_u_and_effect_are_those_of_counted_pairs() -> None:
    # Of the nine pairs A is above B in six (2 and 4 against 0, 0 and 1) and ties in one of the others.
    a = corpus(*["```\n" + "x\n" * n + "```" if n else PLAIN for n in (0, 2, 4)]).with_columns(
        words=pl.Series([0, 2, 4])
    )
    b = a.with_columns(words=pl.Series([0, 1, 2]))
    found = contrast(a, b, "words")
    assert found["u"] == 0.5 + (2 + 0.5) + 3
    assert found["effect"] == pytest.approx(2 * 6.0 / 9 - 1)


def test_p_is_two_sided_by_the_normal_approximation() -> None:
    a = pl.DataFrame(
        {"doc_id": [str(i) for i in range(20)], **{m: range(20) for m in MEASURES}}, schema=QUALITY
    )
    b = a.with_columns(words=pl.Series(range(10, 30)))
    found, mirrored = contrast(a, b, "words"), contrast(b, a, "words")
    # Untied by hand: mean n²/2, variance n²(2n + 1)/12, half a step of continuity; ten ties of two.
    ties = 10 * (2**3 - 2)
    spread = math.sqrt(400 / 12 * (41 - ties / (40 * 39)))
    z = (abs((found["u"] or 0) - 200) - 0.5) / spread
    assert found["p"] == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert mirrored["p"] == pytest.approx(found["p"])
    assert mirrored["effect"] == pytest.approx(-(found["effect"] or 0))


def test_p_values_are_adjusted_over_the_measures_that_both_know() -> None:
    comparison = compare(corpus(*[CODE] * 8), corpus(*[PROSE] * 9))
    tested = [c for c in comparison["contrasts"] if c["p"] is not None]
    assert len(tested) == len(MEASURES) + len(SHARES) - 5
    assert [c["p_adjusted"] for c in tested] == holm_bonferroni([c["p"] or 0.0 for c in tested])
    assert [c["p"] for c in tested] == sorted(c["p"] or 0.0 for c in tested)


def test_an_unknown_bundle_is_not_compared_and_comes_last() -> None:
    comparison = compare(corpus(CODE, scripts=2), corpus(PROSE))
    found = comparison["contrasts"][-5:]
    assert {c["measure"] for c in found} == {
        "bundled_files", "scripts", "reference_documents", "any_script", "any_reference_document",
    }  # fmt: skip
    assert all(
        (c["p"], c["p_adjusted"], c["effect"], c["median_b"]) == (None, None, None, None) for c in found
    )
    assert next(c for c in found if c["measure"] == "scripts")["median_a"] == 2


def test_a_corpus_does_not_differ_from_itself() -> None:
    same = corpus(CODE, PROSE, PLAIN)
    assert {(c["effect"], c["p"]) for c in compare(same, same)["contrasts"] if c["p"] is not None} == {(0, 1)}


IDS = st.sets(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 30)).map(lambda pair: f"{pair[0]}/repo/{pair[1]}")
)


def test_a_namespace_is_owner_and_repository_and_the_host_where_there_is_one() -> None:
    assert namespace_of("ann/tools/bees") == "ann/tools"
    assert namespace_of("ann/tools") == "ann/tools"
    assert namespace_of("gitlab.com/ann/tools/bees") == "gitlab.com/ann/tools"
    assert namespace_of("bees") == "bees"


@given(IDS, st.integers(0, 40), st.sampled_from([namespace_of, lambda doc_id: doc_id[-1]]))
def test_no_stratum_is_drawn_from_twice_before_every_other_had_its_turn(
    doc_ids: set[str], count: int, stratum: Callable[[str], str]
) -> None:
    drawn = stratified(doc_ids, count, stratum=stratum)
    assert len(drawn) == len(set(drawn)) == min(count, len(doc_ids))
    taken, there = (Counter(map(stratum, ids)) for ids in (drawn, doc_ids))
    most = max(taken.values(), default=0)
    assert all(taken[name] >= min(there[name], most - 1) for name in there)


@given(IDS, st.integers(0, 40), st.integers(0, 1000))
def test_a_sample_is_the_beginning_of_a_larger_one_whatever_the_order(
    doc_ids: set[str], count: int, seed: int
) -> None:
    whole = stratified(sorted(doc_ids), len(doc_ids), seed)
    assert stratified(sorted(doc_ids, reverse=True), count, seed) == whole[:count]


def test_served_skills_are_read_as_they_are_served(served_bakery: SkillRoot) -> None:
    held = served_skill_ids(served_bakery.root)
    ids = list(held)
    assert sorted(ids) == sorted(f"local/market/{name}" for name in SKILLS)
    for skill in served_skills(served_bakery.root, ids):
        text = SKILLS[skill.doc_id.rpartition("/")[2]]
        assert f"description: {skill.description}\n" in text
        assert text.rstrip().endswith(skill.body.rstrip())
    assert [s.doc_id for s in served_skills(served_bakery.root, ids[::-1])] == ids[::-1]
