from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.parse.segment.headings import Heading
from tasks.retrieve.paging.context import Outline, Pick, assemble, fill, outline
from tasks.retrieve.paging.render import print_units
from tasks.retrieve.paging.selection import choose
from tasks.retrieve.paging.types import tokens_of
from tests.support.models.word_models import WordTokenizer
from tests.support.paging.prepared_documents import READY, ready_of

UNITS = len(READY.costs.units)
chances = st.lists(st.floats(0.001, 0.999), min_size=UNITS, max_size=UNITS).map(np.array)


@given(chances, st.integers(0, 400))
def test_what_is_taken_is_within_the_ceiling_as_printed_and_taken_once(
    likely: np.ndarray, ceiling: int
) -> None:
    taken = choose(READY.prepared, likely, READY.costs, ceiling=ceiling)
    printed = print_units(READY.prepared, READY.pieces, sorted(taken))
    assert len(set(taken)) == len(taken)
    assert WordTokenizer().count([printed.context]) == [tokens_of(READY, taken, printed.marks)]
    assert not taken or tokens_of(READY, taken, printed.marks) <= ceiling


@given(chances)
def test_a_larger_ceiling_never_holds_less_of_what_is_likely(likely: np.ndarray) -> None:
    sizes = [len(choose(READY.prepared, likely, READY.costs, ceiling=c)) for c in (60, 200, 10_000)]
    assert sizes[-1] == UNITS
    assert all(a <= b + 3 for a, b in pairwise(sizes))


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


FLAT = Outline(above=[(), (), ()], before=[(), (), (), ()])


def taken(
    order: list[int],
    *,
    tokens: list[int],
    ceiling: int,
    where: Outline = FLAT,
    headings: list[int] | None = None,
) -> list[int]:
    ranked = [(ordinal, 0.5) for ordinal in order]
    picks = fill(
        ranked, tokens=tokens, heading_tokens=headings or [], mark_tokens=1, where=where, ceiling=ceiling
    )
    return [ordinal for ordinal, _ in picks]


def test_nodes_are_taken_in_order_of_rank_while_they_fit() -> None:
    assert taken([1, 0, 2], tokens=[4, 4, 4], ceiling=8) == [1, 0]


def test_a_node_that_does_not_fit_is_passed_over_for_a_smaller_one() -> None:
    assert taken([1, 0, 2], tokens=[9, 4, 3], ceiling=8) == [1, 2]


def test_a_gap_costs_its_mark_and_closing_it_gives_the_mark_back() -> None:
    assert taken([0, 2], tokens=[4, 4, 4], ceiling=8) == [0]
    assert taken([0, 2], tokens=[4, 4, 4], ceiling=9) == [0, 2]
    assert taken([0, 2, 1], tokens=[4, 4, 4], ceiling=12) == [0, 2, 1]


def test_a_heading_is_paid_for_once() -> None:
    under_one = Outline(above=[(0,), (0,), (0,)], before=[(0,), (), (), ()])
    assert taken([1, 2], tokens=[4, 4, 4], headings=[3], where=under_one, ceiling=11) == [1, 2]
    assert taken([1, 2], tokens=[4, 4, 4], headings=[3], where=under_one, ceiling=10) == [1]


def test_a_heading_that_a_slice_reaches_over_is_paid_for() -> None:
    between = Outline(above=[(), (), ()], before=[(), (0,), (), ()])
    assert taken([0, 1], tokens=[4, 4, 4], headings=[3], where=between, ceiling=10) == [0]
    assert taken([0, 1], tokens=[4, 4, 4], headings=[3], where=between, ceiling=11) == [0, 1]


def test_the_ranking_is_read_no_further_than_needed() -> None:
    read: list[int] = []

    def ranked() -> Iterator[Pick]:
        for ordinal in (0, 1, 2):
            read.append(ordinal)
            yield ordinal, 0.5

    fill(ranked(), tokens=[5, 5, 5], heading_tokens=[], mark_tokens=1, where=FLAT, ceiling=5)
    assert read == [0, 1]


LEVELS = st.lists(st.integers(0, 3), min_size=1, max_size=14)


@given(LEVELS, st.integers(1, 40), st.randoms())
def test_the_sum_is_that_of_the_context_as_printed(
    levels: list[int], ceiling: int, random: st.DrawFn
) -> None:
    lines = [f"{'#' * level} part {i}" if level else f"node {i}" for i, level in enumerate(levels)]
    body = "\n".join(lines)
    starts = [sum(len(line) + 1 for line in lines[:i]) for i in range(len(lines))]
    cut = [(start, start + len(line)) for start, line in zip(starts, lines, strict=True)]
    headings = [Heading(n, "", *span) for n, span in zip(levels, cut, strict=True) if n]
    spans = [span for n, span in zip(levels, cut, strict=True) if not n]
    order = list(range(len(spans)))
    random.shuffle(order)  # type: ignore[attr-defined]

    def words(text: str) -> int:
        return len(text.replace("#", "").split())

    picks = fill(
        [(ordinal, 0.5) for ordinal in order],
        tokens=[words(body[a:b]) for a, b in spans],
        heading_tokens=[words(body[h.start : h.end]) for h in headings],
        mark_tokens=1,
        where=outline(spans, headings),
        ceiling=ceiling,
    )
    if spans:
        assert words(assemble(body, spans, headings, [ordinal for ordinal, _ in picks])) <= ceiling
    if ceiling >= words(body):
        assert len(spans) == len(picks)
