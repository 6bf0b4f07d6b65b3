"""Stand-ins for the models, small enough to be computed by hand."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

from tasks.models.protocols import Vectors

_TOKEN = re.compile(r"\w+|[^\w\s]")


class WordTokenizer:
    """A word or a punctuation mark is a token; notes every text it counts."""

    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, texts: Sequence[str]) -> list[int]:
        self.counted.extend(texts)
        return [len(_TOKEN.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _TOKEN.finditer(text)]


class WordEncoder:
    """Texts are similar as far as they share words; notes every text it encodes."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded.extend(texts)
        vectors = np.zeros((len(texts), 512), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, zlib.crc32(word.encode()) % 512] += 1
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Vectors = vectors / np.maximum(norms, 1)
        return unit
