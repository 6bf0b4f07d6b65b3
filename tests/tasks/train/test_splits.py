from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.routing.skill import Skill
from tasks.train.logistic import Choice, fit_chance, fit_choice
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


def test_categories_take_turns_each_in_its_own_order() -> None:
    named = ["a", "a", "a", "b", "b", "c"]
    assert in_turn(np.array([2, 0, 1, 4, 3, 5]), named).tolist() == [2, 4, 5, 0, 3, 1]


def test_a_chance_is_as_large_as_the_share_that_is_right() -> None:
    draw = np.random.default_rng(0)
    features = np.c_[np.ones(4000), draw.normal(size=4000)]
    right = draw.random(4000) < 1 / (1 + np.exp(-(0.5 + 2 * features[:, 1])))
    weights = fit_chance(features, right, 1e-6)
    assert np.allclose(weights, [0.5, 2.0], atol=0.25)


def test_a_row_counts_as_often_as_it_is_told_to() -> None:
    draw = np.random.default_rng(0)
    features = np.c_[np.ones(300), draw.normal(size=300)]
    right, counts = draw.random(300) < 0.4, draw.integers(0, 4, 300)
    counted = fit_chance(features, right, 0.0, counts.astype(float))
    repeated = fit_chance(np.repeat(features, counts, axis=0), np.repeat(right, counts), 0.0)
    assert np.allclose(counted, repeated, atol=1e-3)


def test_a_weight_that_may_only_rise_is_not_below_nothing() -> None:
    draw = np.random.default_rng(0)
    features = np.c_[np.ones(400), draw.normal(size=(400, 2))]
    right = draw.random(400) < 1 / (1 + np.exp(2 * features[:, 1] - features[:, 2]))
    assert fit_chance(features, right, 1e-6)[1] < -1
    bounded = fit_chance(features, right, 1e-6, rising=[1, 2])
    assert bounded[1] == 0
    assert bounded[2] > 0


def lists_of(seed: int, lists: int, width: int, informed: float = 1.0) -> list[Choice]:
    """Return lists whose first candidate has more of the first feature, and of the second as the rest."""
    draw = np.random.default_rng(seed)
    made = [draw.normal(size=(draw.integers(2, 9), width)) for _ in range(lists)]
    for one in made:
        one[0, 0] += informed
    return [Choice(one, np.arange(len(one)) == 0) for one in made]


def listwise_loss(weights: np.ndarray, lists: list[Choice]) -> float:
    """Return the mean cross-entropy of the first candidate."""
    scores = [one.features @ weights for one in lists]
    return float(np.mean([np.log(np.exp(own).sum()) - own[0] for own in scores]))


def test_what_tells_the_positive_gets_weight_and_what_does_not_gets_little() -> None:
    lists = lists_of(0, 400, 2)
    weights = fit_choice(lists, 1e-3, scaled=False)
    assert weights[0] > 0.7
    assert abs(weights[1]) < 0.2
    nothing_right = Choice(lists[0].features, np.zeros(len(lists[0].right), dtype=bool))
    np.testing.assert_array_equal(weights, fit_choice([*lists, nothing_right], 1e-3, scaled=False))
    # No weights near them have a lower loss.
    for away in 0.02 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
        near = [listwise_loss(w, lists) + 1e-3 * float(w @ w) for w in (weights, weights + away)]
        assert near[0] < near[1]


def test_lists_that_can_be_parted_and_huge_scores_get_finite_weights() -> None:
    for size in (1.0, 1e4):
        parted = Choice(np.array([[size], [0.0]]), np.array([True, False]))
        weights = fit_choice([parted] * 3, 1e-3, scaled=False)
        assert 0 < weights[0] * size < 1000
        assert np.isfinite(weights).all()
