from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging.units import cut, frame_of
from tests.support.paging.paging_nodes import CODE, PROSE, TABLE, nodes_of


def pieces(body: str) -> list[str]:
    units = cut(body, nodes_of(body))
    return [body[a:b] for a, b in zip(units.start, units.end, strict=True)]


def test_a_short_node_is_one_unit() -> None:
    assert pieces("# Soup\n\nStir.\n\n- Salt it\n") == ["Stir.", "- Salt it"]


def test_code_is_cut_between_its_paragraphs_and_keeps_its_fences_apart() -> None:
    found = pieces(CODE)

    assert len(found) == 8
    assert found[0] == "def step_0():\n    stir(pot, 0 * 10, gently=True)"
    assert frame_of(CODE, nodes_of(CODE)[0]) == ("```python", "```")


def test_a_long_table_is_cut_into_rows_under_its_header() -> None:
    assert pieces(TABLE)[0] == "| leek and potato 0 | 0 |"
    assert len(pieces(TABLE)) == 12
    assert frame_of(TABLE, nodes_of(TABLE)[0]) == ("| soup | minutes |\n|---|---|", "")


@given(st.lists(st.sampled_from([CODE, TABLE, PROSE, "# Head", "- item", "text\n---\nmore"]), max_size=5))
def test_units_are_ordered_disjoint_and_inside_their_nodes(parts: list[str]) -> None:
    body = "\n\n".join(parts)
    nodes = nodes_of(body)
    units = cut(body, nodes)

    assert (units.start < units.end).all()
    assert (units.end[:-1] <= units.start[1:]).all()
    for unit, owner in enumerate(units.owner.tolist()):
        assert nodes[owner].start <= units.start[unit] < units.end[unit] <= nodes[owner].end
        assert units.first[owner] <= unit < units.first[owner + 1]
    assert units.first[-1] == len(units.owner)
    assert (units.tokens >= 1).all()
