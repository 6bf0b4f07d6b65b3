"""Chunks, the baseline without nodes: pieces of a fixed number of tokens (SkillPager, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.models.protocols import Encoder, Tokenizer, Vectors


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a body: ordered spans, their vectors of shape `(n, d)`, and their tokens.

    `size` and `overlap` are the tokens that a chunk has, and shares with the next one.
    """

    spans: list[tuple[int, int]]
    vectors: Vectors
    tokens: list[int]
    size: int = 256
    overlap: int = 0


def chunk_spans(
    body: str, tokenizer: Tokenizer, *, size: int = 256, overlap: int = 0
) -> list[tuple[int, int]]:
    """Return the character spans of consecutive chunks of `size` tokens; the last has the rest.

    Each but the first begins with the last `overlap` tokens of the one before it. `size` is 1 or more,
    `overlap` 0 or more and less than half of `size`, so that of three chunks the outer two share nothing;
    ValueError otherwise.
    """
    if size < 1 or not 0 <= 2 * overlap < size:
        msg = f"size must be at least 1 token and overlap less than half of it, got {size} and {overlap}"
        raise ValueError(msg)
    offsets = tokenizer.offsets(body)
    spans: list[tuple[int, int]] = []
    for first in range(0, max(len(offsets) - overlap, min(len(offsets), 1)), size - overlap):
        piece = offsets[first : first + size]
        # A character that takes several tokens may straddle two chunks: without overlap it stays with the
        # first.
        start = max(piece[0][0], spans[-1][1]) if spans and not overlap else piece[0][0]
        if piece[-1][1] > (spans[-1][1] if spans else start):
            spans.append((start, piece[-1][1]))
    return spans


def encode_chunks(
    body: str, *, encoder: Encoder, tokenizer: Tokenizer, size: int = 256, overlap: int = 0
) -> Chunks:
    """Cut a body into chunks and encode each; arguments and errors as `chunk_spans`."""
    spans = chunk_spans(body, tokenizer, size=size, overlap=overlap)
    texts = [body[start:end] for start, end in spans]
    return Chunks(spans, encoder.encode(texts), tokenizer.count(texts), size, overlap)
