from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.parse.segment.headings import Heading
from tasks.retrieve.paging.context import Outline, Pick, assemble, fill, outline, runs
from tasks.retrieve.paging.render import print_units
from tasks.retrieve.paging.selection import choose
from tasks.retrieve.paging.types import tokens_of
from tests.support.models.word_models import WordTokenizer
from tests.support.paging.prepared_documents import READY, ready_of

UNITS = len(READY.costs.units)


CHANCES = st.lists(st.floats(0.001, 0.999), min_size=UNITS, max_size=UNITS).map(np.array)


@given(CHANCES, st.integers(0, 400))
def test_what_is_taken_is_within_the_ceiling_as_printed_and_taken_once(
    likely: np.ndarray, ceiling: int
) -> None:
    taken = choose(READY.prepared, likely, READY.costs, ceiling=ceiling)
    printed = print_units(READY.prepared, READY.pieces, sorted(taken))
    assert len(set(taken)) == len(taken)
    assert WordTokenizer().count([printed.context]) == [tokens_of(READY, taken, printed.marks)]
    assert not taken or tokens_of(READY, taken, printed.marks) <= ceiling


@given(CHANCES)
def test_a_larger_ceiling_never_holds_less_of_what_is_likely(likely: np.ndarray) -> None:
    sizes = [len(choose(READY.prepared, likely, READY.costs, ceiling=c)) for c in (60, 200, 10_000)]
    assert sizes[-1] == UNITS
    assert all(a <= b + 3 for a, b in pairwise(sizes))


@given(CHANCES, st.floats(0.1, 0.9))
def test_without_a_ceiling_as_much_is_taken_as_is_asked_for(likely: np.ndarray, enough: float) -> None:
    def taken(share: float) -> list[int]:
        return choose(READY.prepared, likely, READY.costs, ceiling=float("inf"), enough=share)

    assert likely[taken(enough)].sum() >= enough * likely.sum() - 1e-9
    assert len(taken(enough / 2)) <= len(taken(enough)) <= len(taken(1.0)) == UNITS


def test_the_likelier_of_two_is_taken_first_and_an_item_comes_with_what_announces_it() -> None:
    # The likelier of two of one size is taken first.
    ready = ready_of("- salt\n- dill\n- lard\n")
    assert choose(ready.prepared, np.array([0.2, 0.9, 0.5]), ready.costs, ceiling=100) == [1, 2, 0]
    # A list item comes with the line that announces it.
    ready = ready_of("Cook now.\n\nTake these along:\n\n- salt\n- dill\n")
    taken = choose(ready.prepared, np.array([0.01, 0.01, 0.01, 0.9]), ready.costs, ceiling=10)
    assert taken[:2] == [1, 3]


FLAT = Outline(above=[(), (), ()], before=[(), (), (), ()])


UNDER_ONE = Outline(above=[(0,), (0,), (0,)], before=[(0,), (), (), ()])


BETWEEN = Outline(above=[(), (), ()], before=[(), (0,), (), ()])


@pytest.mark.parametrize(
    ("order", "where", "ceiling", "taken"),
    [
        ([0, 2], FLAT, 8, [0]), ([0, 2], FLAT, 9, [0, 2]), ([0, 2, 1], FLAT, 12, [0, 2, 1]),
        ([1, 2], UNDER_ONE, 11, [1, 2]), ([1, 2], UNDER_ONE, 10, [1]),
        ([0, 1], BETWEEN, 10, [0]), ([0, 1], BETWEEN, 11, [0, 1]),
    ],
    ids=[
        "a gap costs its mark", "a mark that fits", "a closed gap gives its mark back",
        "a heading is paid once",
        "a heading that does not fit", "a heading within a slice", "a heading within a slice that fits",
    ],
)  # fmt: skip
def test_nodes_headings_and_gap_marks_are_within_the_ceiling(
    order: list[int], where: Outline, ceiling: int, taken: list[int]
) -> None:
    ranked = [(ordinal, 0.5) for ordinal in order]
    picks = fill(ranked, tokens=[4, 4, 4], heading_tokens=[3], mark_tokens=1, where=where, ceiling=ceiling)
    assert [ordinal for ordinal, _ in picks] == taken


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


BODY = """\
# Kiln

Load the kiln cold.

## Firing

### Slow
Raise by 60 degrees an hour.
Hold at 600 degrees.

### Fast

## Cooling
- Wait for 100 degrees.
  - Open the lid a hand wide.
- Unload with gloves.

## Appendix
"""


HOLD = "# Kiln\n\n## Firing\n\n### Slow\n\nHold at 600 degrees."


def headings_of(body: str) -> list[Heading]:
    matches = re.finditer(r"^(#+) (.*)$", body, re.MULTILINE)
    return [Heading(len(m[1]), m[2], m.start(), m.end()) for m in matches]


def spans_of(body: str) -> list[tuple[int, int]]:
    return [m.span(1) for m in re.finditer(r"^[ ]*([^#\s].*)$", body, re.MULTILINE)]


def printed(*selected: int) -> str:
    return assemble(BODY, spans_of(BODY), headings_of(BODY), selected)


@pytest.mark.parametrize(
    ("selected", "context"),
    [
        ((2,), HOLD),
        ((4, 2, 4), f"{HOLD}\n\n…\n\n## Cooling\n\n  - Open the lid a hand wide."),
        (range(6), BODY),
        ((), ""),
    ],
    ids=["under all its headings", "a gap is marked once, above the headings behind it", "all", "none"],
)  # fmt: skip
def test_what_is_selected_is_printed_in_document_order(selected: Iterable[int], context: str) -> None:
    assert printed(*selected) == context


def test_headings_come_once_and_a_run_is_one_slice() -> None:
    # A heading is printed once however many slices stand under it.
    context = printed(3, 5)
    assert context.count("## Cooling") == 1
    assert context.endswith("- Wait for 100 degrees.\n\n…\n\n- Unload with gloves.\n\n## Appendix\n")
    assert printed(2, 3, 5).count("## Cooling") == 1  # it stands inside the first slice
    # Consecutive nodes are one slice with the headings between them.
    assert BODY[BODY.index("# Kiln") : BODY.index("Hold")].rstrip() == printed(0, 1)
    assert "Hold at 600 degrees.\n\n### Fast\n\n## Cooling\n- Wait for 100 degrees." in printed(2, 3)
    # A sentence in the middle of a line begins where it begins.
    body = "Stir. Rest it. Pour."
    assert assemble(body, [(0, 5), (6, 14), (15, 20)], (), [1]) == "Rest it."


DRAWN_LINES = st.lists(st.sampled_from(["# A", "## B", "### C", "", "first words", "  - more words", "last"]))


def above(headings: list[Heading], start: int) -> list[Heading]:
    """A heading stands above what follows until one of its own or a lower level comes."""
    before = [heading for heading in headings if heading.start < start]
    return [h for i, h in enumerate(before) if all(h.level < later.level for later in before[i + 1 :])]


@given(DRAWN_LINES, st.data())
def test_a_context_holds_what_is_selected_under_its_headings_in_order_and_once(
    lines: list[str], data: st.DataObject
) -> None:
    numbered = [f"{line} {i}" if line else "" for i, line in enumerate(lines)]
    body = "\n".join(numbered)
    spans, headings = spans_of(body), headings_of(body)
    selected = data.draw(st.sets(st.sampled_from(range(len(spans)))) if spans else st.just(set[int]()))
    context = assemble(body, spans, headings, selected)
    shown = [line.strip() for line in context.split("\n") if line.strip()]
    places = [[line.strip() for line in numbered].index(line) for line in shown if line != "…"]
    assert sorted(set(places)) == places
    for i, (start, end) in enumerate(spans):
        assert (i in selected) == (body[start:end] in shown)
        if i in selected:
            assert {body[h.start : h.end] for h in above(headings, start)} <= set(shown)
    assert max(len(runs(selected)) - 1, 0) == shown.count("…")
    if len(selected) == len(spans):
        assert body == context
