"""Chunks, the baseline without nodes: pieces of a fixed number of tokens (SkillPager, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.models.protocols import Encoder, Tokenizer, Vectors


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a body: ordered disjoint spans, their vectors of shape `(n, d)`, and their tokens."""

    spans: list[tuple[int, int]]
    vectors: Vectors
    tokens: list[int]


def chunk_spans(body: str, tokenizer: Tokenizer, *, size: int = 256) -> list[tuple[int, int]]:
    """Return the character spans of consecutive chunks of `size` tokens, 1 or more; the last has the rest."""
    if size < 1:
        msg = f"size must be at least 1 token, got {size}"
        raise ValueError(msg)
    offsets = tokenizer.offsets(body)
    spans: list[tuple[int, int]] = []
    for first in range(0, len(offsets), size):
        piece = offsets[first : first + size]
        # A character that takes several tokens may straddle two chunks: it stays with the first.
        start = max(piece[0][0], spans[-1][1] if spans else 0)
        if start < piece[-1][1]:
            spans.append((start, piece[-1][1]))
    return spans


def encode_chunks(body: str, *, encoder: Encoder, tokenizer: Tokenizer, size: int = 256) -> Chunks:
    """Cut a body into chunks of `size` tokens and encode each; errors as `chunk_spans`."""
    spans = chunk_spans(body, tokenizer, size=size)
    texts = [body[start:end] for start, end in spans]
    return Chunks(spans, encoder.encode(texts), tokenizer.count(texts))
