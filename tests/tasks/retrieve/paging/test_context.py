from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.parse.segment.headings import Heading
from tasks.retrieve.paging.context import assemble, outline, runs

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


def headings_of(body: str) -> list[Heading]:
    matches = re.finditer(r"^(#+) (.*)$", body, re.MULTILINE)
    return [Heading(len(m[1]), m[2], m.start(), m.end()) for m in matches]


def spans_of(body: str) -> list[tuple[int, int]]:
    return [m.span(1) for m in re.finditer(r"^[ ]*([^#\s].*)$", body, re.MULTILINE)]


def printed(*selected: int, headings: bool = True) -> str:
    return assemble(BODY, spans_of(BODY), headings_of(BODY) if headings else (), selected)


def test_one_node_stands_under_all_its_headings() -> None:
    assert printed(2) == "# Kiln\n\n## Firing\n\n### Slow\n\nHold at 600 degrees."


def test_a_gap_is_marked_once_above_the_headings_that_follow_it() -> None:
    assert printed(2, 4) == (
        "# Kiln\n\n## Firing\n\n### Slow\n\nHold at 600 degrees.\n\n…\n\n"
        "## Cooling\n\n  - Open the lid a hand wide."
    )


def test_a_heading_is_printed_once_however_many_slices_stand_under_it() -> None:
    context = printed(3, 5)
    assert context.count("## Cooling") == 1
    assert context.endswith("- Wait for 100 degrees.\n\n…\n\n- Unload with gloves.\n\n## Appendix\n")


def test_consecutive_nodes_are_one_slice_with_the_headings_between_them() -> None:
    assert BODY[BODY.index("# Kiln") : BODY.index("Hold")].rstrip() == printed(0, 1)
    assert "Hold at 600 degrees.\n\n### Fast\n\n## Cooling\n- Wait for 100 degrees." in printed(2, 3)


def test_a_slice_keeps_the_indentation_of_its_first_line() -> None:
    assert printed(4).endswith("\n\n  - Open the lid a hand wide.")


def test_a_sentence_in_the_middle_of_a_line_begins_where_it_begins() -> None:
    body = "Stir. Rest it. Pour."
    assert assemble(body, [(0, 5), (6, 14), (15, 20)], (), [1]) == "Rest it."


def test_all_nodes_give_the_whole_body_headings_without_nodes_included() -> None:
    assert printed(0, 1, 2, 3, 4, 5) == BODY


def test_a_body_without_nodes_is_printed_whole() -> None:
    assert assemble("# Empty\n\n## Still empty", [], (), []) == "# Empty\n\n## Still empty"


def test_nothing_selected_prints_nothing() -> None:
    assert printed() == ""


def test_without_headings_only_those_inside_a_slice_are_left() -> None:
    assert printed(2, 4, headings=False) == "Hold at 600 degrees.\n\n…\n\n  - Open the lid a hand wide."


def test_order_and_repeats_of_the_selection_do_not_matter() -> None:
    assert printed(1, 4) == printed(4, 1, 4)


@pytest.mark.parametrize("ordinal", [-1, 6])
def test_an_ordinal_beyond_the_document_is_refused(ordinal: int) -> None:
    with pytest.raises(ValueError, match=str(ordinal)):
        printed(ordinal)


def test_the_outline_says_what_stands_above_and_before_each_node() -> None:
    where = outline(spans_of(BODY), headings_of(BODY))
    assert where.above == [(0,), (0, 1, 2), (0, 1, 2), (0, 4), (0, 4), (0, 4)]
    assert where.before == [(0,), (1, 2), (), (3, 4), (), (), (5,)]


@pytest.mark.parametrize(
    ("selected", "expected"),
    [([], []), ([3], [(3, 3)]), ([4, 1, 2, 0], [(0, 2), (4, 4)]), ([7, 5, 6, 5], [(5, 7)])],
)
def test_runs_are_of_consecutive_ordinals(selected: list[int], expected: list[tuple[int, int]]) -> None:
    assert expected == runs(selected)


LINES = st.lists(st.sampled_from(["# A", "## B", "### C", "", "first words", "  - more words", "last"]))


def above(headings: list[Heading], start: int) -> list[Heading]:
    """A heading stands above what follows until one of its own or a lower level comes."""
    before = [heading for heading in headings if heading.start < start]
    return [h for i, h in enumerate(before) if all(h.level < later.level for later in before[i + 1 :])]


@given(LINES, st.data())
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
