from __future__ import annotations

import numpy as np

from tasks.retrieve.train.split import categories_of, in_turn

_NORTH, _EAST = np.eye(4, dtype=np.float32)[:2]


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
