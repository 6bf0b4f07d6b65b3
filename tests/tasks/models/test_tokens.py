"""Tokenizers: models whose files are the same share one, and it neither cuts nor pads."""

from __future__ import annotations

import shutil
from pathlib import Path

from tasks.models.adapted_encoder import BASE
from tasks.models.onnx_export import resolve
from tasks.models.tokens import whole_tokenizer


def test_folders_with_the_same_file_share_a_tokenizer_that_reads_texts_whole(tmp_path: Path) -> None:
    folder = Path(resolve(BASE)[0])
    shutil.copy(folder / "tokenizer.json", tmp_path)

    tokenizer = whole_tokenizer(folder)

    assert whole_tokenizer(tmp_path) is tokenizer
    assert len(tokenizer.encode("bread " * 1000, add_special_tokens=False).ids) == 1000
