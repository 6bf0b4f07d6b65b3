"""Places of a plan's picture: no box on another, no edge through a box, no text beyond its box."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from tasks.retrieve.compose.drawing.layout import BOX, PAD, Box, PlanLayout, broken, lay_out_plan
from tasks.retrieve.compose.plan import KINDS
from tests.support.hand_plans import hand_plan, party

TEXTS = ["bake", "order flour and milk " * 3, "W" * 90, "send it " * 40]
PLANS = st.lists(st.integers(1, 3), min_size=1, max_size=4).flatmap(
    lambda sizes: st.lists(
        st.tuples(st.integers(1, sum(sizes)), st.integers(1, sum(sizes)), st.sampled_from(KINDS)), max_size=12
    ).map(lambda edges: (sizes, edges))
)


def layered(sizes: list[int], edges: list[tuple[int, int, str]]) -> PlanLayout:
    """Return the layout of a plan whose groups have these sizes, with some more edges downwards."""
    ends = list(itertools.accumulate(sizes))
    group = {n: row for row, end in enumerate(ends) for n in range(end - sizes[row] + 1, end + 1)}
    # Each step but those of the first group waits for the first of the group before.
    held = [(ends[row - 1] - sizes[row - 1] + 1, n, "data") for n, row in group.items() if row]
    held += [edge for edge in edges if group[edge[0]] < group[edge[1]]]
    return lay_out_plan(hand_plan([TEXTS[n % len(TEXTS)] for n in group], held, gaps=[1]))


def meets(box: Box, x: float, low: float, high: float) -> bool:
    """Tell whether an upright line runs through the inside of a box."""
    return box.x < x < box.x + BOX and low < box.y - 1e-9 and high > box.y - box.height + 1e-9


@settings(max_examples=150, deadline=None)
@given(PLANS)
def test_boxes_and_edges_keep_clear_of_each_other(plan: tuple[list[int], list[tuple[int, int, str]]]) -> None:
    layout = layered(*plan)

    for one, other in itertools.combinations(layout.boxes, 2):
        beside = one.x + BOX <= other.x or other.x + BOX <= one.x
        assert beside or one.y - one.height >= other.y or other.y - other.height >= one.y
    for way in layout.ways:
        assert len(way.points) % 2 == 1
        for (x, high), (other, low) in itertools.pairwise(way.points):
            assert high > low - 1e-9
            assert 0 < x < layout.width
            if x == other:
                assert not [box for box in layout.boxes if meets(box, x, low, high)]
    for box in layout.boxes:
        assert 0 < box.x < box.x + BOX < layout.width
        assert 0 < box.y - box.height < box.y < layout.height


def test_a_group_is_a_band_with_its_steps_side_by_side() -> None:
    layout = lay_out_plan(party())

    assert [band.name for band in layout.bands] == ["group 1, side by side", "group 2", "group 3", "group 4"]
    first = layout.bands[0]
    inside = [box.step for box in layout.boxes if first.y - first.height < box.y < first.y]
    assert inside == [1, 2, 3]


def test_an_edge_begins_and_ends_at_its_boxes() -> None:
    plan = party()
    layout = lay_out_plan(plan)
    boxes = {box.step: box for box in layout.boxes}

    for edge, way in zip(plan["edges"], layout.ways, strict=True):
        first, last = boxes[edge["from"]], boxes[edge["to"]]
        assert way.kind == edge["type"]
        assert first.x < way.points[0][0] < first.x + BOX
        assert way.points[0][1] == first.y - first.height
        assert last.x < way.points[-1][0] < last.x + BOX
        assert way.points[-1][1] == last.y


def test_a_box_says_its_text_its_condition_and_what_serves_it_or_that_nothing_does() -> None:
    boxes = lay_out_plan(party()).boxes

    assert boxes[4].lines == (
        ("5. move it indoors", "text"), ("only: if it rains", "condition"), ("shelf/skill-5", "served"),
        ("70% sure", "sure"),
    )  # fmt: skip
    assert boxes[2].lines == (("3. look up the weather", "text"), ("nothing served fits this step", "gap"))
    assert [box.gap for box in boxes] == [False, False, True, False, False, False]


def test_a_plan_without_steps_has_a_layout_too() -> None:
    assert lay_out_plan(hand_plan([])).boxes == ()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("a\n b\tc", ["a b c"]),
        ("one two three four", ["one two", "three four"]),
        ("site/long-name", ["site/long-", "name"]),
        ("abcdefghijklmno", ["abcdefghij", "klmno"]),
        ("面包需要时间", ["面包需要时", "间"]),
        ("one two three four five six", ["one two", "three fou…"]),
        ("\x1b", [r"\x1b"]),
    ],
)
def test_a_text_is_broken_between_words_and_an_id_after_a_sign(text: str, lines: list[str]) -> None:
    assert broken(text, 2, 10) == lines


@given(st.text(max_size=400), st.integers(1, 4))
def test_no_text_is_too_much_for_its_lines(text: str, most: int) -> None:
    assert 1 <= len(broken(text, most)) <= most


@pytest.mark.parametrize(
    "text",
    [
        "if the numbers look odd write a postmortem of the outage and the people",
        "PUT ALL OF IT ON ONE PAGE WITH A VERY LONG TITLE IN CAPITALS",
        "W" * 99,
        "m" * 99,
        "@%&" * 33,
        "local/marketplace/devops/incident-response/postmortem-with-a-name",
    ],
)
def test_no_line_is_wider_than_its_box_in_bold_letters(text: str) -> None:
    bold = FontProperties(family="DejaVu Sans", weight="bold")
    for line in broken(text, 4):
        assert TextPath((0, 0), line, size=8, prop=bold).get_extents().width / 72 < BOX - PAD
