"""Tokenizers of models: one a process for files that say the same, which neither cuts nor pads."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tokenizers import Tokenizer

from tasks.models.protocols import Tokenizer as TextTokenizer


def whole_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a model's folder; it is shared, so nobody may set it otherwise."""
    return _of_file((folder / "tokenizer.json").read_bytes())


@functools.lru_cache(maxsize=4)
def _of_file(data: bytes) -> Tokenizer:
    # An export writes these in its own way, and neither is wanted.
    said = json.loads(data) | {"truncation": None, "padding": None}
    return _of_content(json.dumps(said, sort_keys=True, ensure_ascii=False))


@functools.lru_cache(maxsize=2)
def _of_content(content: str) -> Tokenizer:
    return Tokenizer.from_str(content)


def first_tokens(text: str, most: int, tokenizer: TextTokenizer) -> str:
    """Return the beginning of a text with at most so many tokens."""
    offsets = tokenizer.offsets(text)
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]
