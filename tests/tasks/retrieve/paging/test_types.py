from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging.render import compact
from tasks.retrieve.paging.types import chunk_spans, encode_chunks
from tests.support.clock import is_linear
from tests.support.models.word_models import WordEncoder, WordTokenizer


class BytesTokenizer:
    """A UTF-8 byte is a token, so that one character may be several."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.encode()) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [(i, i + 1) for i, character in enumerate(text) for _ in character.encode()]


def test_chunks_have_the_size_and_the_last_what_is_left() -> None:
    body = "one two  three\n\nfour five"
    assert [body[start:end] for start, end in chunk_spans(body, WordTokenizer(), size=2)] == [
        "one two",
        "three\n\nfour",
        "five",
    ]


def test_the_default_is_256_tokens() -> None:
    assert [end - start for start, end in chunk_spans("x" * 300, BytesTokenizer())] == [256, 44]


def test_a_character_of_several_tokens_stays_with_one_chunk() -> None:
    assert chunk_spans("aéb", BytesTokenizer(), size=2) == [(0, 2), (2, 3)]
    assert chunk_spans("€", BytesTokenizer(), size=2) == [(0, 1)]


@given(st.text(), st.integers(1, 5))
def test_chunks_cover_every_token_in_order_without_overlap(body: str, size: int) -> None:
    spans = chunk_spans(body, BytesTokenizer(), size=size)
    assert list(range(len(body))) == [i for start, end in spans for i in range(start, end)]


@given(st.text(), st.integers(3, 9), st.integers(1, 4))
def test_chunks_that_overlap_share_with_their_neighbours_alone(body: str, size: int, overlap: int) -> None:
    if 2 * overlap >= size:
        with pytest.raises(ValueError, match="less than half"):
            chunk_spans(body, BytesTokenizer(), size=size, overlap=overlap)
        return
    spans = chunk_spans(body, BytesTokenizer(), size=size, overlap=overlap)
    assert {i for start, end in spans for i in range(start, end)} == set(range(len(body)))
    assert spans == sorted(spans)
    assert all(b[0] <= a[1] < b[1] for a, b in pairwise(spans))


def test_a_chunk_begins_with_the_end_of_the_one_before() -> None:
    body = "one two three four five six seven"
    spans = chunk_spans(body, WordTokenizer(), size=3, overlap=1)
    assert [body[start:end] for start, end in spans] == ["one two three", "three four five", "five six seven"]


def test_each_chunk_is_encoded_and_counted() -> None:
    encoder = WordEncoder()
    chunks = encode_chunks("red green blue", encoder=encoder, tokenizer=WordTokenizer(), size=2)
    assert encoder.encoded == ["red green", "blue"]
    assert chunks.spans == [(0, 9), (10, 14)]
    assert chunks.tokens == [2, 1]
    assert chunks.vectors.shape == (2, 512)


def test_an_empty_body_has_no_chunks() -> None:
    assert encode_chunks("", encoder=WordEncoder(), tokenizer=WordTokenizer()).spans == []


def test_a_size_below_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        chunk_spans("text", WordTokenizer(), size=0)


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


def test_the_rule_of_a_table_is_as_short_as_markdown_lets_it_be() -> None:
    table = "| a | **b** |\n|:-----|------:|\n| --- | 2 |"
    assert compact(table, "table") == "a | b\n-|-\n--- | 2"


@pytest.mark.parametrize("block", ["code", "html"])
def test_code_and_html_stay_as_they_are(block: str) -> None:
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
