"""Tokens: the tokenizers of models, one a process for files of the same bytes, and counts by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from tasks.models.preloaded import loaded_once
from tasks.models.protocols import Tokenizer as TextTokenizer

# Of these characters a BERT's tokenizer makes words and marks as this expression does; of others (accents,
# scripts without spaces, control characters) it has rules of its own.
_PLAIN = re.compile(r"[\t\n\r\x20-\x7e]*")
_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")
_MOST_KEPT = 200_000  # words, of some 150 bytes each


def whole_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a model's folder; it is shared, so nobody may set it otherwise."""
    return _of_file((folder / "tokenizer.json").read_bytes())


@loaded_once(2)
def _of_file(data: bytes) -> Tokenizer:
    found = Tokenizer.from_buffer(data)
    found.no_truncation()  # an export writes these in its own way, and neither is wanted
    found.no_padding()
    return found


def first_tokens(text: str, most: int, tokenizer: TextTokenizer) -> str:
    """Return the beginning of a text with at most so many tokens."""
    if not most:
        return ""
    offsets = tokenizer.offsets(text)
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


class WordCounts:
    """Counts the tokens of texts as a tokenizer does, without special ones, in a half to a third of its time.

    The tokenizer must neither cut nor pad; one of another kind than a BERT's lower-case one counts itself.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._pieces = tokenizer, _Pieces(tokenizer)
        normalizer = tokenizer.normalizer
        self._by_word = (
            isinstance(normalizer, BertNormalizer)
            and normalizer.lowercase
            and normalizer.clean_text
            and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
            and isinstance(tokenizer.model, WordPiece)
        )
        marks = [re.escape(token.content) for token in tokenizer.get_added_tokens_decoder().values()]
        self._marks = re.compile("|".join(marks) or "(?!)", re.IGNORECASE)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        if not self._by_word:
            return self._counted(texts)
        parts = [self._split(text) for text in texts]
        others = iter(self._counted([other for _, other in parts if other]))
        return [count + (next(others) if other else 0) for count, other in parts]

    def _split(self, text: str) -> tuple[int, str]:
        """Return the tokens of a text's plain lines, and its other lines."""
        if self._is_plain(text):
            return self._words(text), ""
        # No word goes on over the end of a line.
        plain: list[str] = []
        others: list[str] = []
        for line in text.split("\n"):
            (plain if self._is_plain(line) else others).append(line)
        return self._words("\n".join(plain)), "\n".join(others)

    def _is_plain(self, text: str) -> bool:
        return _PLAIN.fullmatch(text) is not None and not self._marks.search(text)

    def _words(self, text: str) -> int:
        return sum(map(self._pieces.__getitem__, _WORD.findall(text.lower())))

    def _counted(self, texts: Sequence[str]) -> list[int]:
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False) if texts else []
        return [len(one) for one in found]


class _Pieces(dict[str, int]):
    """The number of tokens of each word, found when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[word] = count = len(self._tokenizer.encode(word, add_special_tokens=False))
        return count


@lru_cache(maxsize=4)
def word_counts(tokenizer: Tokenizer) -> WordCounts:
    """Return the counts of a tokenizer, one a process."""
    return WordCounts(tokenizer)


class TokenSpans:
    """Counts tokens and tells where they stand, without special ones, by a tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 (transformers has no common type)
        self._tokenizer = tokenizer

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The tokenizer of transformers."""
        return self._tokenizer

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [len(self.offsets(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return each token's character span in `text`, in order."""
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(int(start), int(end)) for start, end in found["offset_mapping"]]
