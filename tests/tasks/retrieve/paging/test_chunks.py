from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.paging.chunks import chunk_spans, encode_chunks
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
