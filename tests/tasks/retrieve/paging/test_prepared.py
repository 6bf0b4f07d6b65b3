from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging.prepared import cut, frame_of
from tasks.retrieve.paging.terms import bm25, index_words, rarity, term_counts, words_of
from tests.support.paging.prepared_documents import CODE, PROSE, TABLE, nodes_of


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
