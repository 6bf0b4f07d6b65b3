"""Word vectors: what stands for a sentence encoder's vectors where encoding would take too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from tasks.models.protocols import Vectors
from tasks.retrieve.paging.terms import words_of

_DIMENSION = 1024


class WordVectors:
    """Encodes a text as the logarithms of its words' counts, each at a place that its hash gives.

    Implements `tasks.models.protocols.Encoder`: unit vectors, float32 of shape `(texts, 1024)`. The cosine of
    two texts is high if they share words, and 0 if they share none but for collisions of hashes.
    """

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text; a text without words has the vector of zeros but for one place."""
        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word, count in Counter(words_of(text)).items():
                row[crc32(word.encode("utf-8", "surrogatepass")) % _DIMENSION] += np.log1p(count)
            if not row.any():
                row[0] = 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors
