from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.duplicates.near import NearLimits
from tasks.retrieve.train.pairs.clusters import clusters_of, validation_rows

LONG = " ".join(f"word{n} of the recipe" for n in range(80))
GIVEN = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 12)), min_size=1, max_size=40)


def test_equal_and_near_texts_are_one_cluster_and_others_are_not() -> None:
    bodies = [LONG, f"{LONG} And salt.", "Something else entirely, about tea.", LONG, "Short.", "Short.", ""]

    one, near, other, equal, short, same, empty = clusters_of(bodies, NearLimits(0.85)).tolist()

    assert one == near == equal
    assert short == same
    assert len({one, other, short, empty}) == 4


@given(GIVEN, st.floats(0, 1), st.integers(0, 5))
def test_no_repository_and_no_cluster_is_on_both_sides(
    rows: list[tuple[str, int]], share: float, seed: int
) -> None:
    repos, clusters = [repo for repo, _ in rows], [cluster for _, cluster in rows]

    held = validation_rows(repos, np.array(clusters), share, seed)

    for names in (repos, clusters):
        inside = {names[row] for row in held}
        assert inside.isdisjoint(names[row] for row in range(len(rows)) if row not in held)
    assert held == validation_rows(repos, np.array(clusters), share, seed)


def test_about_the_share_that_is_wanted_is_held_out_and_the_seed_draws_it() -> None:
    repos = [f"repo {n}" for n in range(1000)]
    one, other = (validation_rows(repos, np.arange(1000), 0.1, seed) for seed in (0, 1))

    assert len(one) == len(other) == 100
    assert one != other


def test_a_repository_is_one_in_whatever_case_its_name_is_written() -> None:
    assert validation_rows(["Tea/Shop", "tea/shop"], np.arange(2), 0.5, 0) == set()


def test_a_large_repository_is_trained_with() -> None:
    repos = ["large"] * 500 + [f"repo {n}" for n in range(500)]

    held = validation_rows(repos, np.arange(1000), 0.4, 0)

    assert len(held) == 400
    assert min(held) >= 500
