from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging.prepared import cut, frame_of
from tasks.retrieve.paging.render import Printed, print_units
from tasks.retrieve.paging.terms import bm25, index_words, rarity, term_counts, words_of
from tasks.retrieve.paging.types import Ready
from tests.support.paging.prepared_documents import CODE, PROSE, READY, TABLE, nodes_of, ready_of


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


def found(text: str, term: str) -> int:
    return int(term_counts(index_words([text]), [term])[0, 0])


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Plant a plant, planting plants", 4),
        ("transplant explanted", 0),
        ("plantationally", 0),
        ("autoPlant re_plant x2plant", 3),
        ("PLANT IT", 1),
    ],
)
def test_a_stem_matches_where_words_begin_with_it_and_end_soon(text: str, times: int) -> None:
    assert found(text, "plant") == times


def test_a_short_term_stands_alone_or_in_the_plural() -> None:
    assert found("run runs runtime rerun", "run") == 2


def test_a_number_stands_alone() -> None:
    assert found("port 80 and 8080 and v80", "80") == 2


def test_names_of_code_and_unspaced_scripts_are_taken_apart() -> None:
    assert words_of("setOvenHeat HTTPServer max_v2 été") == [
        "set", "oven", "heat", "http", "server", "max", "v", "2", "été",
    ]  # fmt: skip
    assert words_of("緑茶葉") == ["緑茶", "茶葉"]
    assert found("緑茶葉です", "茶葉") == 1


@given(st.lists(st.text(max_size=30), max_size=4), st.text(max_size=5))
def test_no_word_is_lost_or_counted_twice(texts: list[str], term: str) -> None:
    index = index_words(texts)
    counts = term_counts(index, sorted(set(index.words)))
    assert len(index.places) == sum(len(words_of(text)) for text in texts)
    assert counts.shape == (len(index.words), len(texts))
    assert (counts.sum(axis=1) >= 1).all()
    assert term_counts(index, [term]).sum() <= len(index.places)


def test_counts_are_of_the_text_that_holds_the_word() -> None:
    index = index_words(["Mites here.", "No mites, mites.", ""])
    assert term_counts(index, ["mite", "mites", "absent"]).tolist() == [[1, 2, 0], [1, 2, 0], [0, 0, 0]]


def test_rare_terms_and_short_texts_weigh_more() -> None:
    counts = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    weights = rarity(counts)
    scores = bm25(counts, np.array([5.0, 5.0, 50.0]), weights, length_share=0.75)
    assert weights[1] > weights[0] > 0
    assert scores[0, 1] > scores[0, 2] > scores[1, 2] == 0
