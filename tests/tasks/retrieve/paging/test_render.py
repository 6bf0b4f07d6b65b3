from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.retrieve.paging.prepared import cut, frame_of
from tasks.retrieve.paging.render import Printed, compact, print_units
from tasks.retrieve.paging.terms import bm25, index_words, rarity, term_counts, words_of
from tasks.retrieve.paging.types import Ready, chunk_spans, encode_chunks
from tests.support.clock import is_linear
from tests.support.models.word_models import WordEncoder, WordTokenizer
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


def test_blocks_are_cut_within_their_frames_and_a_short_node_is_one_unit() -> None:
    # Code is cut between its paragraphs and keeps its fences apart.
    found = pieces(CODE)
    assert len(found) == 8
    assert found[0] == "def step_0():\n    stir(pot, 0 * 10, gently=True)"
    assert frame_of(CODE, nodes_of(CODE)[0]) == ("```python", "```")
    # A long table is cut into rows under its header.
    assert pieces(TABLE)[0] == "| leek and potato 0 | 0 |"
    assert len(pieces(TABLE)) == 12
    assert pieces("# Soup\n\nStir.\n\n- Salt it\n") == ["Stir.", "- Salt it"]
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
    ("term", "text", "times"),
    [
        ("plant", "Plant a plant, planting plants", 4), ("plant", "transplant explanted", 0),
        ("plant", "plantationally", 0), ("plant", "autoPlant re_plant x2plant", 3), ("plant", "PLANT IT", 1),
        ("run", "run runs runtime rerun", 2), ("80", "port 80 and 8080 and v80", 2),
    ],
)  # fmt: skip
def test_a_stem_matches_where_words_begin_with_it_and_end_soon(term: str, text: str, times: int) -> None:
    assert found(text, term) == times


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


def test_counts_are_of_the_text_that_holds_the_word_and_rare_terms_weigh_more() -> None:
    # Counts are of the text that holds the word.
    index = index_words(["Mites here.", "No mites, mites.", ""])
    assert term_counts(index, ["mite", "mites", "absent"]).tolist() == [[1, 2, 0], [1, 2, 0], [0, 0, 0]]
    # Rare terms and short texts weigh more.
    counts = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    weights = rarity(counts)
    scores = bm25(counts, np.array([5.0, 5.0, 50.0]), weights, length_share=0.75)
    assert weights[1] > weights[0] > 0
    assert scores[0, 1] > scores[0, 2] > scores[1, 2] == 0


class BytesTokenizer:
    """A UTF-8 byte is a token, so that one character may be several."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.encode()) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [(i, i + 1) for i, character in enumerate(text) for _ in character.encode()]


def test_chunks_have_their_size_and_a_character_stays_with_one() -> None:
    # Chunks have the size and the last what is left.
    body = "one two  three\n\nfour five"
    assert [body[start:end] for start, end in chunk_spans(body, WordTokenizer(), size=2)] == [
        "one two",
        "three\n\nfour",
        "five",
    ]
    # A character of several tokens stays with one chunk.
    assert chunk_spans("aéb", BytesTokenizer(), size=2) == [(0, 2), (2, 3)]
    assert chunk_spans("€", BytesTokenizer(), size=2) == [(0, 1)]
    # A chunk begins with the end of the one before.
    body = "one two three four five six seven"
    spans = chunk_spans(body, WordTokenizer(), size=3, overlap=1)
    assert [body[start:end] for start, end in spans] == ["one two three", "three four five", "five six seven"]


@given(st.text(), st.integers(1, 5))
def test_chunks_cover_every_token_in_order_without_overlap(body: str, size: int) -> None:
    spans = chunk_spans(body, BytesTokenizer(), size=size)
    assert list(range(len(body))) == [i for start, end in spans for i in range(start, end)]


@given(st.text(), st.integers(3, 9), st.integers(1, 4))
def test_chunks_that_overlap_share_with_their_neighbours_alone(body: str, size: int, overlap: int) -> None:
    assume(2 * overlap < size)
    spans = chunk_spans(body, BytesTokenizer(), size=size, overlap=overlap)
    assert {i for start, end in spans for i in range(start, end)} == set(range(len(body)))
    assert spans == sorted(spans)
    assert all(b[0] <= a[1] < b[1] for a, b in pairwise(spans))


def test_each_chunk_is_encoded_and_counted() -> None:
    encoder = WordEncoder()
    chunks = encode_chunks("red green blue", encoder=encoder, tokenizer=WordTokenizer(), size=2)
    assert encoder.encoded == ["red green", "blue"]
    assert chunks.spans == [(0, 9), (10, 14)]
    assert chunks.tokens == [2, 1]
    assert chunks.vectors.shape == (2, 512)


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("- **Heat**: keep **low**", "- Heat: keep low"),
        ("call `f(**options)` with **care**", "call `f(**options)` with care"),
        ("2**3 and **/*.txt stay", "2**3 and **/*.txt stay"),
        ("Stir.\n\n---", "Stir."),
        ("Stir.\n\n* * *\nServe.", "Stir.\n\nServe."),
        ("well-known -- dashes", "well-known -- dashes"),
    ],
)
def test_marks_that_carry_nothing_go_and_all_else_stays(text: str, shorter: str) -> None:
    assert compact(text, "prose") == shorter


def test_a_table_has_its_shortest_rule_and_code_and_html_stay_as_they_are() -> None:
    table = "| a | **b** |\n|:-----|------:|\n| --- | 2 |"
    assert compact(table, "table") == "a | b\n-|-\n--- | 2"
    for block in ("code", "html"):
        assert compact("x = a ** b\n---\n**c**", block) == "x = a ** b\n---\n**c**"


@pytest.mark.parametrize(
    ("row", "shorter"),
    [
        ("| leek | 7 |", "leek | 7"),
        ("| leek | |", "| leek | |"),
        ("| | 7 |", "| | 7 |"),
        ("| leek |", "| leek |"),
        ("| a | b \\|", "| a | b \\|"),
        ("leek | 7", "leek | 7"),
    ],
)
def test_a_row_needs_marks_between_its_cells_only(row: str, shorter: str) -> None:
    assert compact(row, "row") == shorter


@pytest.mark.parametrize(
    ("line", "shorter"),
    [
        ("# --------- oven ---------", "# --- oven ---"),
        ("  // ========", "  // ==="),
        ("----------", "---"),
        ("-----BEGIN KEY-----", "-----BEGIN KEY-----"),
        ('print("==========")', 'print("==========")'),
        ("##### fifth", "##### fifth"),
        ("##########", "###"),
    ],
)
def test_rulers_in_comments_of_code_are_short(line: str, shorter: str) -> None:
    assert compact(line, "code") == shorter


@pytest.mark.parametrize("block", ["prose", "table", "row", "code"])
@pytest.mark.parametrize(
    ("before", "piece", "after"), [("**", "`", " x"), ("", "| a ", "|"), ("", "**a `", ""), ("", " ", "|")]
)
def test_no_text_of_a_paragraph_takes_long(before: str, piece: str, after: str, block: str) -> None:
    assert is_linear(lambda size: compact(before + piece * (size // len(piece)) + after, block), 5_000)
