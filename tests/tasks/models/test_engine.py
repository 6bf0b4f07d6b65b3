"""Tokenizers: models whose files are the same share one, and it neither cuts nor pads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tasks.models import tokens as module
from tasks.models.adapted_encoder import BASE
from tasks.models.engine import OpenVino, batches_of, whole_model
from tasks.models.onnx_export import resolve
from tasks.models.tokens import WordCounts, whole_tokenizer
from tests.support.models.tiny_models import WEIGHT, bare_graph
from tests.support.paths import PROJECT


def test_a_graph_without_weights_computes_with_those_it_is_given() -> None:
    engine = OpenVino(whole_model(bare_graph(), {"weight": WEIGHT + 1}), threads=1)
    rows = np.array([[1, 2], [0, 1]], dtype=np.float32)
    assert engine.inputs == {"rows"}
    assert engine.run({"rows": rows}).tolist() == (rows @ (WEIGHT + 1)).tolist()


def test_a_weight_that_is_not_given_is_named() -> None:
    with pytest.raises(KeyError, match="weight"):
        whole_model(bare_graph(), {"other": WEIGHT})


_FIRST_CALLS = """
import sys, threading
import numpy as np
from tasks.models.engine import OpenVino, whole_model
from tests.support.models.tiny_models import WEIGHT, bare_graph

engine = OpenVino(whole_model(bare_graph(), {"weight": WEIGHT}), threads=2)
begin, row = threading.Barrier(4), np.ones((1, 2), np.float32)

def run() -> None:
    begin.wait()
    engine.run({"rows": row})

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads:
    thread.start()
"""


@pytest.mark.slow
def test_threads_that_make_the_first_calls_of_a_process_at_once_all_end() -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", _FIRST_CALLS], cwd=PROJECT, check=True, timeout=60)


@given(st.lists(st.integers(0, 300), max_size=200))
def test_every_window_is_in_one_batch_of_its_length(lengths: list[int]) -> None:
    batches = batches_of(lengths)
    assert sorted(at for batch in batches for at in batch) == list(range(len(lengths)))
    assert all(len({lengths[at] for at in batch}) == 1 for batch in batches)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= 1024 for batch in batches)
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)
    # Windows of one length stay in order.
    assert [at for batch in batches for at in batch] == sorted(
        range(len(lengths)), key=lambda at: -lengths[at]
    )


def test_the_encoder_when_it_is_loaded_leaves_nothing_in_the_home_of_its_user(tmp_path: Path) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    subprocess.run(
        [sys.executable, "-c", "import tasks.models.encoder"],
        cwd=PROJECT, env={**others, "HOME": str(tmp_path)}, check=True,
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


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
