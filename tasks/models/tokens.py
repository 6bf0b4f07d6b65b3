"""Tokenizers of models: one a process for files that are the same, which neither cuts nor pads."""

from __future__ import annotations

import functools
from pathlib import Path

from tokenizers import Tokenizer


def whole_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a model's folder; it is shared, so nobody may set it otherwise."""
    return _of_content((folder / "tokenizer.json").read_text("utf-8"))


@functools.lru_cache(maxsize=2)
def _of_content(content: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
