from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.retrieve.paging.render import Printed, print_units
from tasks.retrieve.paging.types import Ready
from tests.support.paging.prepared_documents import CODE, READY, nodes_of, ready_of


def printed(ready: Ready, chosen: list[int]) -> Printed:
    return print_units(ready.prepared, ready.pieces, chosen)


@pytest.mark.parametrize(
    ("chosen", "context"),
    [
        ([0], "# A\n\none"),
        ([0, 1], "# A\n\none\n\n- two"),
        ([0, 2], "# A\n\none\n\n…\n\n  - three"),
        ([2, 3], "# A\n\n  - three\n\n## B\n\nfour"),
        ([3], "# A\n\n## B\n\nfour"),
        ([], ""),
    ],
)
def test_headings_come_once_gaps_are_marked_and_nesting_stays(chosen: list[int], context: str) -> None:
    assert printed(ready_of("# A\n\none\n\n- two\n  - three\n\n## B\n\nfour\n"), chosen).context == context


def test_one_gap_has_one_mark_inside_the_block_that_it_cuts() -> None:
    ready = ready_of(f"first\n\n{CODE}\n\nlast\n")
    found = printed(ready, [0, 3, 6, 9])
    assert found.context == (
        "first\n\n```python\n…\ndef step_2():\n    stir(pot, 2 * 10, gently=True)\n…\n"
        "def step_5():\n    stir(pot, 5 * 10, gently=True)\n…\n```\n\nlast"
    )
    assert found.marks == 3
    assert found.whole == {0, 2}


@settings(deadline=None)
@given(st.sets(st.integers(0, len(READY.costs.units) - 1)))
def test_units_stand_in_order_each_heading_once_and_every_node_s_text_in_the_context(
    chosen: set[int],
) -> None:
    found = printed(READY, sorted(chosen))
    at = 0
    for unit in sorted(chosen):
        at = found.context.index(READY.pieces.texts[unit], at) + 1
    assert all(text in found.context for text in found.texts.values())
    assert all(found.context.count(f"{title}\n") <= 1 for title in READY.pieces.titles)
    assert found.marks == found.context.count("…")
    assert list(found.texts) == sorted(set(READY.prepared.units.owner[sorted(chosen)].tolist()))


def test_white_space_that_tokenizers_may_not_know_is_made_plain() -> None:
    body = "one.\x1c\x1cTwo stands here. " + "More of the same stands here. " * 30
    assert len(nodes_of(body)) >= 1
    ready = ready_of(body)
    assert not set("".join(ready.pieces.glue)) - set(" \t\r\n")
