from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluate.corpus.skill_sample import namespace_of, served_skill_ids, served_skills, stratified
from tests.support.roots.hand_written import SKILLS
from tests.support.roots.skill_root import SkillRoot

IDS = st.sets(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 30)).map(lambda pair: f"{pair[0]}/repo/{pair[1]}")
)


def test_a_namespace_is_owner_and_repository_and_the_host_where_there_is_one() -> None:
    assert namespace_of("ann/tools/bees") == "ann/tools"
    assert namespace_of("ann/tools") == "ann/tools"
    assert namespace_of("gitlab.com/ann/tools/bees") == "gitlab.com/ann/tools"
    assert namespace_of("bees") == "bees"


@given(IDS, st.integers(0, 40))
def test_no_namespace_is_drawn_from_twice_before_every_other_had_its_turn(
    doc_ids: set[str], count: int
) -> None:
    drawn = stratified(doc_ids, count)
    assert len(drawn) == len(set(drawn)) == min(count, len(doc_ids))
    taken, there = (Counter(map(namespace_of, ids)) for ids in (drawn, doc_ids))
    most = max(taken.values(), default=0)
    assert all(taken[name] >= min(there[name], most - 1) for name in there)


@given(IDS, st.integers(0, 40), st.integers(0, 1000))
def test_a_sample_is_the_beginning_of_a_larger_one_whatever_the_order(
    doc_ids: set[str], count: int, seed: int
) -> None:
    whole = stratified(sorted(doc_ids), len(doc_ids), seed)
    assert stratified(sorted(doc_ids, reverse=True), count, seed) == whole[:count]


def test_another_seed_draws_others() -> None:
    doc_ids = [f"a{n}/repo/skill" for n in range(50)]
    assert stratified(doc_ids, 10, 1) != stratified(doc_ids, 10, 2)


def test_served_skills_are_read_as_they_are_served(served_bakery: SkillRoot) -> None:
    ids = served_skill_ids(served_bakery.root)
    assert sorted(ids) == sorted(f"local/market/{name}" for name in SKILLS)
    for skill in served_skills(served_bakery.root, ids):
        text = SKILLS[skill.doc_id.rpartition("/")[2]]
        assert f"description: {skill.description}\n" in text
        assert text.rstrip().endswith(skill.body.rstrip())
    assert [s.doc_id for s in served_skills(served_bakery.root, ids[::-1])] == ids[::-1]
