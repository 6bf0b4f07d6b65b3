"""What the stages ask of a model; each protocol is small enough to be written by hand in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """A bi-encoder: texts to vectors, each text by itself."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, shape `(len(texts), dimension)`; longer texts are windowed."""


@runtime_checkable
class PartEncoder(Encoder, Protocol):
    """An encoder that can look into a text."""

    def encode_parts(self, text: str, parts: Sequence[tuple[int, int]]) -> Vectors:
        """Return the unit vectors of a text and of character spans of it, shape `(1 + parts, dimension)`."""


@runtime_checkable
class StateEncoder(Encoder, Protocol):
    """An encoder that can tell what it makes of a text's tokens."""

    def encode_states(self, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        """Return one unit vector a text, and its states as `token_states` packs them, or none."""


class Tokenizer(Protocol):
    """The encoder's tokenizer, without its special tokens."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return each token's character span in `text`, in order."""


class IndexEncoder(Encoder, Tokenizer, Protocol):
    """What an index is built with: an encoder with its tokenizer and its card."""

    @property
    def card(self) -> dict[str, Any]:
        """What identifies its vectors: name, revision, dimension, max_tokens, pooling."""
