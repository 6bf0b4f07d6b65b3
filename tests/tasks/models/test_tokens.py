"""Tokenizers: models whose files are the same share one, and it neither cuts nor pads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tasks.models import tokens as module
from tasks.models.adapted_encoder import BASE
from tasks.models.onnx_export import resolve
from tasks.models.tokens import WordCounts, whole_tokenizer, word_counts


def test_folders_with_the_same_file_share_a_tokenizer_that_reads_texts_whole(tmp_path: Path) -> None:
    folder = Path(resolve(BASE)[0])
    shutil.copy(folder / "tokenizer.json", tmp_path)
    tokenizer = whole_tokenizer(folder)
    assert whole_tokenizer(tmp_path) is tokenizer
    assert len(tokenizer.encode("bread " * 1000, add_special_tokens=False).ids) == 1000


MINILM = whole_tokenizer(Path(resolve("sentence-transformers/all-MiniLM-L6-v2")[0]))
PARTS = st.sampled_from([
    "Knead the dough", "unbelievably", "snake_case", "v1.2.3", "\n", "\r\n", "\t", " ", "[SEP]", "[sep]",
    "[x]", "é", "naïve", "水车", "—", "😀", "\x00", "\x0b", "\x0c", "\x1f", "\x7f", "\u2028", "\u00a0",
    "e\u0301", "\u0301", "İ", "ß", "`code`", "##ing", "x" * 120, "ﬁ", "\ufffd", "\ud7ff", "ཀ", "٣", "a1b2",
])  # fmt: skip
TEXTS = st.one_of(st.lists(PARTS, max_size=12).map("".join), st.text(max_size=60))


def expected(texts: list[str], tokenizer: Tokenizer = MINILM) -> list[int]:
    return [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]


@given(st.lists(TEXTS, max_size=5))
@example(["Knead the dough, [SEP] then rest.", "", "fold\u2028it", "one line\nzwei Sätze\nthree"])
def test_texts_have_as_many_tokens_as_the_tokenizer_makes(texts: list[str]) -> None:
    assert WordCounts(MINILM).count(texts) == expected(texts)


def test_words_are_cut_once_and_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 3)
    texts = ["one two three four five", "five four three two one unbelievably"]
    counts = WordCounts(MINILM)
    assert counts.count(texts) == expected(texts) == counts.count(texts)


def test_a_tokenizer_of_another_kind_counts_itself() -> None:
    other = Tokenizer.from_str(MINILM.to_str())
    other.normalizer = normalizers.BertNormalizer(lowercase=False)
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = ["KNEAD the dough: snake_case -- 1.2"]
    assert WordCounts(other).count(texts) == expected(texts, other)
    assert WordCounts(other).count([]) == []


def test_a_tokenizer_has_one_memory_a_process() -> None:
    assert word_counts(MINILM) is word_counts(MINILM)
