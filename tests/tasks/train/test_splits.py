from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.routing.skill import Skill
from tasks.train.splits import categories_of, families, folds_of, in_turn, one_a_family, split_families

_NORTH, _EAST = np.eye(4, dtype=np.float32)[:2]
_few = st.integers(0, 12)


@st.composite
def shelves(draw: st.DrawFn) -> list[Skill]:
    """Return skills of few names and few bodies, so that many share one."""
    rows = draw(st.lists(st.tuples(_few, _few), min_size=1, max_size=40))
    return [Skill(f"s/{i}", f"Name {n}", "", f"body {b}") for i, (n, b) in enumerate(rows)]


@given(shelves(), st.floats(0.05, 0.95), st.integers(0, 5))
def test_no_name_and_no_body_stands_on_both_sides(skills: list[Skill], share: float, seed: int) -> None:
    train, held_out = split_families(families(skills), share, seed)
    sides = [[skills[row] for row in rows.tolist()] for rows in (train, held_out)]
    assert not {s.name for s in sides[0]} & {s.name for s in sides[1]}
    assert not {s.body for s in sides[0]} & {s.body for s in sides[1]}
    assert len({s.name for s in sides[1]}) == len({s.body for s in sides[1]}) == len(sides[1])


@given(shelves(), st.integers(0, 5))
def test_a_split_is_the_same_for_the_same_seed(skills: list[Skill], seed: int) -> None:
    of = families(skills)
    one, other = (split_families(of, 0.4, seed) for _ in range(2))
    assert [side.tolist() for side in one] == [side.tolist() for side in other]


@given(shelves(), st.floats(0, 1), st.integers(0, 5), st.data())
def test_who_is_trained_with_is_never_held_out_and_who_is_asked_for_stands_for_the_family(
    skills: list[Skill], share: float, seed: int, data: st.DataObject
) -> None:
    rows = st.lists(st.sampled_from(range(len(skills))), max_size=10)
    trained, validated = data.draw(rows), data.draw(rows)
    of = families(skills)
    train, held_out = split_families(of, share, seed, trained, validated)
    assert set(trained) <= set(train.tolist())
    asked = set(of[validated].tolist()) - set(of[trained].tolist())
    assert asked <= set(of[held_out].tolist())
    assert all(row in validated for row in held_out.tolist() if of[row] in asked)
    assert not set(of[train].tolist()) & set(of[held_out].tolist())
    assert sorted(of[held_out].tolist()) == sorted(set(of.tolist()) - set(of[train].tolist()))


def test_chains_of_equal_names_and_bodies_are_one_family() -> None:
    skills = [
        Skill("a", "Bread Oven", "", "Knead it."),
        Skill("b", "bread_oven", "", "Fold it."),
        Skill("c", "hearth", "", " Fold\n it. "),
        Skill("d", "anvil", "", "Strike it."),
    ]
    assert len(set(families(skills)[:3].tolist())) == 1
    assert len(set(families(skills).tolist())) == 2


@pytest.mark.parametrize(("share", "held"), [(0.25, 5), (0.5, 10)])
def test_so_large_a_share_of_the_families_is_held_out(share: float, held: int) -> None:
    train, held_out = split_families(np.arange(20), share, seed=0)
    assert (len(train), len(held_out)) == (20 - held, held)


def test_one_of_each_family_is_drawn_and_not_always_the_first() -> None:
    of = np.array([0, 0, 0, 1, 2, 2])
    drawn = [one_a_family(of, np.arange(6), np.random.default_rng(seed)).tolist() for seed in range(20)]
    assert all(sorted(of[rows].tolist()) == [0, 1, 2] for rows in drawn)
    assert {row for rows in drawn for row in rows} == {0, 1, 2, 3, 4, 5}


def test_rows_of_one_owner_share_a_fold() -> None:
    owners = [str(k % 7) for k in range(40)]
    folds = folds_of(owners, 3, seed=1)
    assert set(folds.tolist()) == {0, 1, 2}
    assert all(folds[k] == folds[k % 7] for k in range(40))


def around(centre: np.ndarray, n: int) -> np.ndarray:
    vectors = centre + 0.1 * np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def test_a_listings_category_is_kept_and_others_are_clusters_of_descriptions() -> None:
    vectors = np.concatenate([around(_NORTH, 10), around(_EAST, 12)])
    given = ["bread", *[None] * 10, " ", *["metal"] * 10]
    named = categories_of(given, vectors, 2, seed=0)
    assert named[0] == "bread"
    assert named[12:] == ["metal"] * 10
    assert len(set(named[1:10])) == 1
    assert len(set(named[10:12])) == 1
    assert named[1] != named[10]


def test_clusters_are_the_same_for_the_same_seed_and_never_more_than_vectors() -> None:
    vectors = around(_NORTH, 6)
    one, other = (categories_of([None] * 6, vectors, 50, seed=3) for _ in range(2))
    assert one == other
    assert len(set(one)) <= 6
    assert len(set(categories_of([None] * 3, np.stack([_EAST] * 3), 50, seed=3))) == 1


def test_where_all_have_a_category_nothing_is_clustered() -> None:
    assert categories_of(["a", "b"], np.zeros((2, 4), np.float32), 50, seed=0) == ["a", "b"]


def test_categories_take_turns_each_in_its_own_order() -> None:
    named = ["a", "a", "a", "b", "b", "c"]
    assert in_turn(np.array([2, 0, 1, 4, 3, 5]), named).tolist() == [2, 4, 5, 0, 3, 1]
