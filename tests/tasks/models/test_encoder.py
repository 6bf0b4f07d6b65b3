from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from storage.errors import ModelMismatch
from tasks.models.encoder import OnnxEncoder, card_of
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
    minilm_export: Export, tmp_path: Path
) -> None:
    for name in ("encoder.json", "tokenizer.json", "model.onnx"):
        shutil.copy(minilm_export.folder / name, tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path)
    first = OnnxEncoder(tmp_path)._engine
    assert OnnxEncoder(tmp_path / "linked", threads=1)._engine is first
    os.utime(tmp_path / "model.onnx", ns=(1, 1))
    assert OnnxEncoder(tmp_path)._engine is not first


def test_an_export_without_openvinos_form_has_the_same_vectors(
    minilm: OnnxEncoder, minilm_export: Export, tmp_path: Path
) -> None:
    for name in ("encoder.json", "tokenizer.json", "model.onnx"):
        shutil.copy(minilm_export.folder / name, tmp_path)
    before = OnnxEncoder(tmp_path).encode(TEXTS)
    assert (minilm.encode(TEXTS) * before).sum(axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-4)


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


def test_parts_of_a_text_of_several_windows_lie_where_they_stand(minilm: OnnxEncoder) -> None:
    text = words(120)
    whole, first, last = minilm.encode_parts(text, [(0, 40), (len(text) - 40, len(text))])
    assert whole == pytest.approx(minilm.encode([text])[0], abs=1e-3)
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


def test_an_encoder_that_loads_ahead_has_the_same_vectors(minilm: OnnxEncoder, minilm_export: Export) -> None:
    ahead = OnnxEncoder(minilm_export.folder)
    ahead.load_ahead()
    np.testing.assert_array_equal(ahead.encode(TEXTS), minilm.encode(TEXTS))
    assert ahead._tokenizer_ahead is not None
    assert ahead._tokenizer is ahead._tokenizer_ahead.result()


def test_what_fails_to_load_ahead_is_told_where_it_is_needed_until_it_is_mended(
    minilm: OnnxEncoder, minilm_export: Export, tmp_path: Path
) -> None:
    shutil.copy(minilm_export.folder / "encoder.json", tmp_path)
    lacking = OnnxEncoder(tmp_path)
    lacking.load_ahead()
    with pytest.raises(Exception, match=r"tokenizer\.json"):
        lacking.encode(TEXTS)
    assert lacking._engine_ahead is not None  # it may only begin, and would find half of what is copied now
    with pytest.raises(Exception, match=r"model\.onnx"):
        lacking._engine_ahead.result()
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
