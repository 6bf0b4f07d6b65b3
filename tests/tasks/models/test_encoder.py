"""The encoder: its vectors and states, the engine that runs it, its tokens counted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from storage.errors import ModelMismatch
from tasks.models import tokens as module
from tasks.models.adapted_encoder import BASE
from tasks.models.encoder import OnnxEncoder, card_of
from tasks.models.engine import OpenVino, batches_of, whole_model
from tasks.models.onnx_export import resolve
from tasks.models.token_states import (
    GROUP,
    encoded,
    pack,
    packaged_projection,
    project,
    require_packed,
    unit,
    unpack,
    unpack_all,
)
from tasks.models.tokens import WordCounts, whole_tokenizer
from tests.support.models.tiny_models import WEIGHT, bare_graph
from tests.support.models.word_models import WordEncoder
from tests.support.paths import PROJECT
from tests.support.roots.skill_root import MINILM, Export

TEXTS = [
    "Knead the dough.",
    "",
    "Open the hive only when it is warmer than fifteen degrees outside, and close it within the hour.",
    "お湯を七十度まで冷ます",
    "`log-hive --colony 3`",
    "Knead the dough.",
]


def words(count: int) -> str:
    return " ".join(f"hive{i % 7} weighs {i} grams" for i in range(count))


def test_vectors_are_of_unit_length_and_in_the_order_of_the_texts(minilm: OnnxEncoder) -> None:
    vectors = minilm.encode([*TEXTS, words(60)])
    assert vectors.shape == (len(TEXTS) + 1, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(vectors)), abs=1e-5)
    assert vectors[0] == pytest.approx(vectors[5], abs=1e-6)
    assert minilm.encode(["Knead dough, then bake it"])[0] @ vectors[0] > 0.6 > vectors[2] @ vectors[0]


def test_encoders_of_one_file_share_its_engine_and_a_file_that_changed_has_another(
    minilm: OnnxEncoder, minilm_export: Export, tmp_path: Path
) -> None:
    """Here of an export without OpenVINO's form, as all were before."""
    for name in ("encoder.json", "tokenizer.json", "model.onnx"):
        shutil.copy(minilm_export.folder / name, tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path)
    first = OnnxEncoder(tmp_path)._engine
    assert OnnxEncoder(tmp_path / "linked", threads=1)._engine is first
    os.utime(tmp_path / "model.onnx", ns=(1, 1))
    other = OnnxEncoder(tmp_path)
    assert other._engine is not first
    cosines = (minilm.encode(TEXTS) * other.encode(TEXTS)).sum(axis=1)
    assert cosines == pytest.approx(np.ones(len(TEXTS)), abs=1e-4)


def test_a_text_has_the_same_vector_and_states_alone_as_among_any_others(minilm: OnnxEncoder) -> None:
    texts = [*TEXTS, words(60), *(words(n) for n in range(1, 30, 7)), *(f"hive {n}" for n in range(90))]
    together, states = minilm.encode_states(texts)
    for some in (range(len(texts))[::7], range(40, 100), [3], [6, 2, 6]):
        vectors, packed = minilm.encode_states([texts[n] for n in some])
        assert np.array_equal(vectors, together[list(some)])
        assert packed == [states[n] for n in some]


def test_a_long_text_has_the_normalised_mean_of_its_windows(minilm: OnnxEncoder) -> None:
    text = words(120)
    spans = minilm.offsets(text)
    length = minilm.card["max_tokens"] - 2
    assert len(spans) > 2 * length
    starts = range(0, len(spans), length)
    windows = [text[spans[i][0] : spans[min(i + length, len(spans)) - 1][1]] for i in starts]
    assert minilm.count(windows) == [len(spans[i : i + length]) for i in starts]
    mean = minilm.encode(windows).mean(axis=0)
    assert minilm.encode([text])[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-3)


def test_parts_are_encoded_with_the_whole_and_in_its_context(minilm: OnnxEncoder) -> None:
    text = "Knead the dough, then open the hive."
    spans = [(0, 15), (17, 35), (15, 15), (0, len(text))]
    whole, dough, hive, nothing, every = minilm.encode_parts(text, spans)
    assert whole == pytest.approx(minilm.encode([text])[0], abs=1e-3)
    assert nothing == pytest.approx(whole, abs=1e-6)
    assert every @ whole > 0.95
    alone = minilm.encode(["Knead the dough", "open the hive"])
    assert dough @ alone[0] > hive @ alone[0]
    assert hive @ alone[1] > dough @ alone[1]
    assert np.linalg.norm([whole, dough, hive], axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    long = words(120)  # of several windows
    whole, first, last = minilm.encode_parts(long, [(0, 40), (len(long) - 40, len(long))])
    assert whole == pytest.approx(minilm.encode([long])[0], abs=1e-3)
    assert first @ last < 0.99


def test_vectors_do_not_depend_on_the_number_of_threads(minilm_export: Export) -> None:
    texts = [words(n % 40 + 1) for n in range(60)]
    one, three = (OnnxEncoder(minilm_export.folder, threads=n) for n in (1, 3))
    assert np.array_equal(three.encode(texts), one.encode(texts))


def test_tokens_are_counted_without_special_ones_as_offsets_lists_them(minilm: OnnxEncoder) -> None:
    texts = [*TEXTS, words(300)]
    assert minilm.count(texts) == [len(minilm.offsets(text)) for text in texts]
    assert minilm.count(["", "knead the dough"]) == [0, 4]
    assert [TEXTS[0][a:b] for a, b in minilm.offsets(TEXTS[0])] == ["Kn", "ead", "the", "dough", "."]


def test_what_fails_to_load_ahead_is_told_where_it_is_needed_until_it_is_mended(
    minilm: OnnxEncoder, minilm_export: Export, tmp_path: Path
) -> None:
    shutil.copy(minilm_export.folder / "encoder.json", tmp_path)
    lacking = OnnxEncoder(tmp_path)
    lacking.load_ahead()
    with pytest.raises(Exception, match=r"tokenizer\.json"):
        lacking.encode(TEXTS)
    with pytest.raises(Exception, match=r"model\.onnx"):
        lacking.engine  # noqa: B018 - it may only begin, and would find half of what is copied now
    for file in minilm_export.folder.iterdir():  # as a run mends it, while a server has it open
        shutil.copy(file, tmp_path)
    np.testing.assert_array_equal(lacking.encode(TEXTS), minilm.encode(TEXTS))


@pytest.mark.parametrize(
    ("card", "said"), [("{", "holds no exported encoder"), ('{"pooling": "max"}', "pooling 'max'")]
)
def test_a_card_that_cannot_be_used_is_refused(tmp_path: Path, card: str, said: str) -> None:
    (tmp_path / "encoder.json").write_text(card, "utf-8")
    with pytest.raises(ModelMismatch, match=said):
        card_of(tmp_path)


_REFERENCE = """
import json, sys
from sentence_transformers import SentenceTransformer
from tasks.models.onnx_export import resolve
model = SentenceTransformer(resolve(sys.argv[1])[0], device="cpu")
sys.stdout.write(json.dumps(model.encode(json.load(sys.stdin)).tolist()))
"""


@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers(minilm: OnnxEncoder) -> None:
    command = [sys.executable, "-c", _REFERENCE, MINILM]
    done = subprocess.run(command, input=json.dumps(TEXTS), capture_output=True, text=True, check=True)
    assert minilm.encode(TEXTS) == pytest.approx(np.array(json.loads(done.stdout)), abs=1e-4)


def test_a_graph_without_weights_computes_with_those_it_is_given() -> None:
    engine = OpenVino(whole_model(bare_graph(), {"weight": WEIGHT + 1}), threads=1)
    rows = np.array([[1, 2], [0, 1]], dtype=np.float32)
    assert engine.inputs == {"rows"}
    assert engine.run({"rows": rows}).tolist() == (rows @ (WEIGHT + 1)).tolist()
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


@given(st.lists(st.integers(0, 300), max_size=200), st.integers(1, 2000), st.integers(1, 4))
def test_every_window_is_in_one_batch_of_its_length(lengths: list[int], tokens: int, threads: int) -> None:
    batches = batches_of(lengths, tokens, threads)
    assert sorted(at for batch in batches for at in batch) == list(range(len(lengths)))
    assert all(len({lengths[at] for at in batch}) == 1 for batch in batches)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens for batch in batches)
    assert all(len(batch) <= -(-len(lengths) // threads) for batch in batches)
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
    shutil.copy(Path(resolve(BASE)[0]) / "tokenizer.json", tmp_path)
    assert whole_tokenizer(tmp_path) is whole_tokenizer(Path(resolve(BASE)[0]))
    assert len(whole_tokenizer(tmp_path).encode("bread " * 1000, add_special_tokens=False).ids) == 1000


TOKENIZER = whole_tokenizer(Path(resolve(BASE)[0]))
PARTS = st.sampled_from([
    "Knead the dough", "unbelievably", "snake_case", "v1.2.3", "\n", "\r\n", "\t", " ", "[SEP]", "[sep]",
    "[x]", "é", "naïve", "水车", "—", "😀", "\x00", "\x0b", "\x0c", "\x1f", "\x7f", "\u2028", "\u00a0",
    "e\u0301", "\u0301", "İ", "ß", "`code`", "##ing", "x" * 120, "ﬁ", "\ufffd", "\ud7ff", "ཀ", "٣", "a1b2",
])  # fmt: skip
ANY_TEXTS = st.one_of(st.lists(PARTS, max_size=12).map("".join), st.text(max_size=60))


def expected(texts: list[str], tokenizer: Tokenizer = TOKENIZER) -> list[int]:
    return [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]


@given(st.lists(ANY_TEXTS, max_size=5))
@example(["Knead the dough, [SEP] then rest.", "", "fold\u2028it", "one line\nzwei Sätze\nthree"])
def test_texts_have_as_many_tokens_as_the_tokenizer_makes(texts: list[str]) -> None:
    assert WordCounts(TOKENIZER).count(texts) == expected(texts)


def test_words_are_cut_once_and_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 3)
    texts = ["one two three four five", "five four three two one unbelievably"]
    counts = WordCounts(TOKENIZER)
    assert counts.count(texts) == expected(texts) == counts.count(texts)


def test_a_tokenizer_of_another_kind_counts_itself() -> None:
    other = Tokenizer.from_str(TOKENIZER.to_str())
    other.normalizer = normalizers.BertNormalizer(lowercase=False)
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = ["KNEAD the dough: snake_case -- 1.2"]
    assert WordCounts(other).count(texts) == expected(texts, other)
    assert WordCounts(other).count([]) == []


HIVE = "Lift the lid of the hive slowly, and blow a little smoke under it."
DOUGH = "Knead the dough for ten minutes."
DIMENSIONS = packaged_projection().shape[1]
SIZE = DIMENSIONS // 2  # bytes of a state


@given(arrays(np.float32, st.tuples(st.integers(1, 9), st.just(384)), elements=st.floats(-2, 2, width=32)))
def test_what_is_unpacked_points_where_the_pairs_of_states_did(states: np.ndarray) -> None:
    states[:, 0] += 3  # no row is all zeros
    found = unpack(*pack([states]))
    pairs = [unit(states[at : at + GROUP]).sum(axis=0) for at in range(0, len(states), GROUP)]
    assert found.shape == (-(-len(states) // GROUP), DIMENSIONS)
    # Values beyond 2.7 root mean squares are cut, so that vectors with outliers turn a little.
    assert (found * project(np.stack(pairs))).sum(axis=1) == pytest.approx(1, abs=0.1)


def test_texts_unpacked_together_are_those_unpacked_alone() -> None:
    drawn = np.random.default_rng(0).normal(size=(9, 384)).astype(np.float32)
    packed = pack([drawn[:5], drawn[:0], drawn[5:]])
    found = unpack_all(packed)
    assert packed == [*pack([drawn[:5]]), b"", *pack([drawn[5:]])]
    assert [len(states) for states in found] == [3, 0, 2]
    assert all(np.array_equal(states, unpack(alone)) for states, alone in zip(found, packed, strict=True))
    with pytest.raises(ValueError, match=f"{SIZE + 1} bytes are no whole number"):
        unpack_all([bytes(SIZE + 1), bytes(SIZE - 1)])
    assert unpack(b"").shape == (0, DIMENSIONS)


@pytest.mark.parametrize("packed", [b"a", bytes(SIZE - 1), bytes(3 * SIZE + 1)])
def test_bytes_that_are_no_whole_number_of_states_are_refused(packed: bytes) -> None:
    said = f"{len(packed)} bytes are no whole number of states"
    with pytest.raises(ValueError, match=said):
        unpack(packed)
    with pytest.raises(ValueError, match=said):
        require_packed([0, SIZE, len(packed)])


def test_the_encoder_makes_vectors_and_states_in_one_pass_and_the_vectors_are_those_of_encode(
    minilm: OnnxEncoder,
) -> None:
    texts = [HIVE, "", DOUGH, "word " * 400]
    vectors, packed = minilm.encode_states(texts)
    assert np.allclose(vectors, minilm.encode(texts), atol=1e-6)
    counted = [len(states) // SIZE for states in packed]
    assert counted == [-(-tokens // GROUP) for tokens in minilm.count(texts)]


def test_states_are_those_of_the_tokens_in_their_order(minilm: OnnxEncoder) -> None:
    spans = minilm.offsets(HIVE)
    pairs = [(spans[at][0], spans[min(at + 1, len(spans) - 1)][1]) for at in range(0, len(spans), GROUP)]
    expected = project(minilm.encode_parts(HIVE, pairs)[1:])
    found = unpack(minilm.encode_states([DOUGH, HIVE])[1][1])
    assert (found * expected).sum(axis=1).min() > 0.95


def test_a_model_whose_states_are_not_known_has_none(minilm: OnnxEncoder) -> None:
    other = OnnxEncoder(minilm._folder, threads=1)
    other.card = {**other.card, "name": "another"}
    vectors, packed = other.encode_states([HIVE])
    assert packed == [b""]
    assert np.array_equal(vectors, other.encode([HIVE]))
    vectors, packed = encoded(WordEncoder(), [HIVE, DOUGH])  # which does not look so deep
    assert (len(vectors), packed) == (2, [b"", b""])
