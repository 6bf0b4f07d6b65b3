from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from storage.errors import ModelMismatch, WrongInput
from storage.root import Root
from tasks.models.cached_encoder import KeptEncoder, vectors_of
from tasks.models.with_torch import device
from tasks.models.with_torch.bi_encoder import Prefixed, TorchEncoder
from tasks.models.with_torch.device import compute_in_bf16, device_of
from tests.support.models.tiny_models import library, save_qwen3

TEXTS = ["mend a tyre with glue", "honey", "bake rye bread with sour dough and yeast in the oven"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3(tmp_path_factory.mktemp("bi") / "qwen3")


def last_state(folder: Path, text: str) -> list[float]:
    """Return the normalised state of a text's last token, by transformers itself and without padding."""
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    model = library.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        state = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1]
    return [float(x) for x in state / state.norm()]


def test_a_vector_is_the_state_of_the_last_token_whatever_stands_beside_it_in_the_batch(folder: Path) -> None:
    vectors = TorchEncoder(str(folder), batch=3).encode(TEXTS)
    assert vectors.dtype == np.float32
    for vector, text in zip(vectors, TEXTS, strict=True):
        assert vector == pytest.approx(np.array(last_state(folder, text)), abs=1e-5)


def test_the_prefix_stands_before_queries_alone(folder: Path) -> None:
    encoder = TorchEncoder(str(folder))
    asked = Prefixed(encoder, "Instruct: find a skill\nQuery: ").encode(["bake bread"])[0]
    assert asked == pytest.approx(encoder.encode(["Instruct: find a skill\nQuery: bake bread"])[0])
    assert not np.allclose(asked, encoder.encode(["bake bread"])[0])


def test_a_text_is_cut_at_the_longest_that_is_read(folder: Path) -> None:
    encoder = TorchEncoder(str(folder), max_tokens=4)
    first, second, other = encoder.encode(
        ["bake bread with honey", "bake bread with wax", "cut steel with wax"]
    )
    assert first == pytest.approx(second)
    assert not np.allclose(first, other)


def test_tokens_are_counted_and_found_in_the_text_without_special_ones(folder: Path) -> None:
    encoder = TorchEncoder(str(folder))
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.count(["bake bread", ""]) == [2, 0]
    assert encoder.offsets("bake  bread") == [(0, 4), (6, 11)]


def test_vectors_are_kept_as_those_of_any_encoder(folder: Path, tmp_path: Path) -> None:
    model = TorchEncoder(str(folder))
    kept = KeptEncoder(model, Root(tmp_path))
    made, again = kept.encode(TEXTS), kept.encode(TEXTS)
    assert made == pytest.approx(model.encode(TEXTS))
    assert np.array_equal(made, again)
    assert len(vectors_of(Root(tmp_path), model.card)) == 3


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match=f"model {tmp_path} cannot be loaded"):
        TorchEncoder(str(tmp_path)).encode(TEXTS)


@pytest.mark.parametrize("wanted", ["cuda:99", "a fast one", "gpu"])
def test_a_device_that_torch_has_not_is_named(wanted: str) -> None:
    with pytest.raises(WrongInput, match=f"SKILLERY_DEVICE='{wanted}' cannot be used here"):
        device_of(wanted)
    faster = torch.cuda.is_available() or torch.backends.mps.is_available()
    assert (device_of("auto") == "cpu") == (not faster)
    assert device_of("cpu") == "cpu"


@pytest.mark.parametrize("able", [True, False])
def test_a_module_computes_in_bf16_where_the_processor_does_and_no_other_module_with_it(
    able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "computes_bf16", lambda: able)
    module, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    compute_in_bf16(module, "cpu")
    assert module(torch.ones(1, 4)).dtype == (torch.bfloat16 if able else torch.float32)
    assert other(torch.ones(1, 4)).dtype == module.weight.dtype == torch.float32
