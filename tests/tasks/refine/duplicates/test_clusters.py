from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.refine.duplicates.near import survivors

N = 9
PAIRS = st.lists(
    st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)).filter(lambda p: p[0] < p[1]), unique=True
)


def onto(pairs: list[tuple[int, int]], n: int = N, max_cluster: int = 1000) -> list[int]:
    found = survivors(np.array(pairs, np.int64).reshape(-1, 2), n, max_cluster=max_cluster)
    return [int(number) for number in found]


def by_hand(pairs: list[tuple[int, int]]) -> list[int]:
    found: list[int] = []
    for text in range(N):
        better = [other for other in range(text) if (other, text) in pairs and found[other] == other]
        found.append(better[0] if better else text)
    return found


@given(PAIRS)
@settings(deadline=None)
def test_a_text_folds_onto_the_best_survivor_near_it(pairs: list[tuple[int, int]]) -> None:
    assert onto(pairs) == by_hand(pairs)


@given(st.data(), PAIRS)
@settings(deadline=None)
def test_the_order_of_pairs_has_no_influence(data: st.DataObject, pairs: list[tuple[int, int]]) -> None:
    assert onto(data.draw(st.permutations(pairs))) == onto(pairs)


@given(PAIRS)
@settings(deadline=None)
def test_each_text_is_near_its_survivor_and_no_two_survivors_are_near(pairs: list[tuple[int, int]]) -> None:
    found = onto(pairs)
    assert all((found[text], text) in pairs for text in range(N) if found[text] != text)
    assert not [p for p in pairs if found[p[0]] == p[0] and found[p[1]] == p[1]]


@given(PAIRS, PAIRS)
@settings(deadline=None)
def test_what_no_chain_of_pairs_connects_has_no_influence(
    pairs: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    apart = [(a + N, b + N) for a, b in others]
    assert onto(pairs + apart, 2 * N)[:N] == onto(pairs)


def test_a_chain_does_not_fold_into_one() -> None:
    assert onto([(at, at + 1) for at in range(N - 1)]) == [0, 0, 2, 2, 4, 4, 6, 6, 8]


@pytest.mark.parametrize(
    ("cap", "expected"), [(8, [0] * 9), (3, [0, 0, 0, 0, 4, 4, 4, 4, 8]), (0, [*range(9)])]
)
def test_a_survivor_takes_no_more_than_the_cap(cap: int, expected: list[int]) -> None:
    alike = [(a, b) for b in range(N) for a in range(b)]
    assert onto(alike, max_cluster=cap) == expected


def test_nothing_near_is_all_survivors() -> None:
    assert onto([], 3) == [0, 1, 2]
    assert onto([], 0) == []
