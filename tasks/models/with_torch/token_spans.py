"""Token spans: where a tokenizer of transformers sees the tokens of a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class TokenSpans(ABC):
    """Counts tokens and tells where they stand, without special ones; implements Tokenizer."""

    @property
    @abstractmethod
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The tokenizer of transformers."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [len(self.offsets(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return each token's character span in `text`, in order."""
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(int(start), int(end)) for start, end in found["offset_mapping"]]


class LibraryTokens(TokenSpans):
    """The spans of a tokenizer that is there."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 (transformers has no common type)
        self._tokenizer = tokenizer

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The tokenizer of transformers."""
        return self._tokenizer
