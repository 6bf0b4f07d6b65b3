from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.retrieve.paging.prepared import tokens_of
from tasks.retrieve.paging.render import print_units
from tasks.retrieve.paging.selection import choose
from tests.support.models.word_models import WordTokenizer
from tests.support.paging.paging_ready import READY, ready_of

UNITS = len(READY.costs.units)
chances = st.lists(st.floats(0.001, 0.999), min_size=UNITS, max_size=UNITS).map(np.array)


@settings(deadline=None)
@given(chances, st.integers(0, 400))
def test_what_is_taken_is_within_the_ceiling_as_printed_and_taken_once(
    likely: np.ndarray, ceiling: int
) -> None:
    taken = choose(READY.prepared, likely, READY.costs, ceiling=ceiling)
    printed = print_units(READY.prepared, READY.pieces, sorted(taken))

    assert len(set(taken)) == len(taken)
    assert WordTokenizer().count([printed.context]) == [tokens_of(READY, taken, printed.marks)]
    assert not taken or tokens_of(READY, taken, printed.marks) <= ceiling


@settings(deadline=None)
@given(chances)
def test_a_larger_ceiling_never_holds_less_of_what_is_likely(likely: np.ndarray) -> None:
    sizes = [len(choose(READY.prepared, likely, READY.costs, ceiling=c)) for c in (60, 200, 10_000)]

    assert sizes[-1] == UNITS
    assert all(a <= b + 3 for a, b in pairwise(sizes))


@settings(deadline=None)
@given(chances, st.floats(0.1, 0.9))
def test_without_a_ceiling_as_much_is_taken_as_is_asked_for(likely: np.ndarray, enough: float) -> None:
    def taken(share: float) -> list[int]:
        return choose(READY.prepared, likely, READY.costs, ceiling=float("inf"), enough=share)

    assert likely[taken(enough)].sum() >= enough * likely.sum() - 1e-9
    assert len(taken(enough / 2)) <= len(taken(enough)) <= len(taken(1.0)) == UNITS


def test_the_likelier_of_two_of_one_size_is_taken_first() -> None:
    ready = ready_of("- salt\n- dill\n- lard\n")

    assert choose(ready.prepared, np.array([0.2, 0.9, 0.5]), ready.costs, ceiling=100) == [1, 2, 0]


def test_a_list_item_comes_with_the_line_that_announces_it() -> None:
    ready = ready_of("Cook now.\n\nTake these along:\n\n- salt\n- dill\n")

    taken = choose(ready.prepared, np.array([0.01, 0.01, 0.01, 0.9]), ready.costs, ceiling=10)

    assert taken[:2] == [1, 3]
