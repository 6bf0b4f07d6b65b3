from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import ModelMismatch, WrongInput
from tasks.models.with_torch.reranker import CausalReranker
from tasks.train import trainers
from tasks.train.trainers import TrainingSettings, require_training, train_bi_encoder, train_reranker
from tests.support.models.tiny_models import save_bi_encoder, save_cross_encoder, save_qwen3

# Each skill is asked for in words that its text does not have: only training can know.
_PAIRS = {
    "sour dough": "bake bread", "honey hive": "mites wax", "patch tyre": "pump hole",
    "prune roses": "cut wood", "sharp steel": "edge knife", "seed soil": "grow light",
    "grow yeast": "knead mould", "clean tin": "new oven",
}  # fmt: skip
# No text stands in two rows, so that each batch of eight holds every pair.
_OTHERS = (
    "cake loaf", "find list", "corner fold", "thin glue", "rye for", "how task", "user system", "on to",
)  # fmt: skip
ROWS = [
    (query, text, other, " ".join(reversed(other.split())))
    for _ in range(4)
    for (query, text), other in zip(_PAIRS.items(), _OTHERS, strict=True)
]
JUDGE = "judge the skill"
HOW = TrainingSettings(batch=8, learning_rate=0.01, temperature=0.1, tokens=16, checkpoint=1)


@pytest.fixture(scope="module")
def bi_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_bi_encoder(tmp_path_factory.mktemp("bi")))


def weights(folder: str | Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(Path(folder) / "model.safetensors")


def same(one: str | Path, other: str | Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_what_is_read_is_as_long_as_before(bi_encoder: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    train_bi_encoder(bi_encoder, ROWS[:8], HOW, tmp_path / "new")
    model: Any = SentenceTransformer(str(tmp_path / "new"), device="cpu")
    assert model.max_seq_length == 64


def test_half_of_what_was_learned_lies_halfway(bi_encoder: str, tmp_path: Path) -> None:
    for share in (1.0, 0.5):
        train_bi_encoder(bi_encoder, ROWS[:8], replace(HOW, kept=share), tmp_path / f"{share}")
    before, whole, half = (weights(f) for f in (bi_encoder, tmp_path / "1.0", tmp_path / "0.5"))
    assert not same(tmp_path / "1.0", bi_encoder)
    for name, value in half.items():
        assert np.allclose(value, (before[name] + whole[name]) / 2, atol=1e-6)


def test_a_large_batch_is_read_in_parts_and_learns_the_same(
    bi_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers.sentence_transformer.modules import Transformer

    losses: list[list[float]] = []
    most, read = [], list[int]()
    forward = Transformer.forward

    def counted(self: Any, features: dict[str, Any], **options: Any) -> Any:  # noqa: ANN401
        read.append(len(features["input_ids"]))
        return forward(self, features, **options)

    monkeypatch.setattr(Transformer, "forward", counted)
    for at_once in (8, 2):
        read.clear()
        monkeypatch.setattr(trainers, "_AT_ONCE", at_once)
        trained = train_bi_encoder(bi_encoder, ROWS, HOW, tmp_path / f"{at_once}")
        losses.append([loss for _, loss in trained.losses])
        most.append(max(read))
    assert most[1] < most[0] == 8
    assert np.allclose(*losses, atol=0.02)
    assert len(losses[0]) == 4


@pytest.mark.slow
def test_training_that_was_cut_off_goes_on_where_it_was(bi_encoder: str, tmp_path: Path) -> None:
    whole = train_bi_encoder(bi_encoder, ROWS, HOW, tmp_path / "whole")

    def cut(done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bi_encoder(bi_encoder, ROWS, HOW, tmp_path / "cut", cut)
    assert not (tmp_path / "cut").exists()
    resumed: list[int] = []
    again = train_bi_encoder(
        bi_encoder, ROWS, HOW, tmp_path / "cut", lambda done, _total: resumed.append(done)
    )
    assert resumed == [3, 4]
    assert same(tmp_path / "cut", tmp_path / "whole")
    assert [step for step, _ in again.losses] == [step for step, _ in whole.losses]
    assert again.tokens == round(whole.tokens / 2)  # of the updates made now


def test_a_batchs_loss_tells_each_positive_from_all_texts_of_the_batch(
    bi_encoder: str, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    trained = train_bi_encoder(bi_encoder, ROWS[:8], replace(HOW, learning_rate=1e-12), tmp_path / "new")
    model: Any = SentenceTransformer(bi_encoder, device="cpu")
    asked, *texts = (
        model.encode(list(column), normalize_embeddings=True) for column in zip(*ROWS[:8], strict=True)
    )
    scores = asked @ np.concatenate(texts).T / HOW.temperature
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
    assert trained.losses[0][1] == pytest.approx(float(expected), rel=0.02)


def test_a_lists_loss_is_the_cross_entropy_of_its_own_candidates(tmp_path: Path) -> None:
    base = str(save_cross_encoder(tmp_path / "base"))
    config = Path(base) / "config.json"
    without_chance = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | without_chance), "utf-8")
    # Not a step is made that could move a score: the loss told is that of the base.
    still = replace(HOW, temperature=0.5, batch=1, learning_rate=1e-12)
    trained = train_reranker(base, ROWS[:1], still, tmp_path / "new")
    import torch
    from sentence_transformers import CrossEncoder as Loaded

    model: Any = Loaded(base, device="cpu")
    model.train(False)
    query, texts = _list(0)
    raw = model.predict([(query, text) for text in texts], activation_fn=torch.nn.Identity()) / 0.5
    assert trained.losses[0][1] == pytest.approx(float(np.log(np.exp(raw).sum()) - raw[0]), rel=1e-3)


def test_pointwise_the_loss_is_that_of_each_candidate_by_itself(tmp_path: Path) -> None:
    base = str(save_qwen3(tmp_path / "base"))
    still = replace(HOW, batch=1, learning_rate=1e-12, tokens=64)
    trained = train_reranker(base, ROWS[:1], still, tmp_path / "new", loss="pointwise", instruction=JUDGE)
    shares = CausalReranker(base, instruction=JUDGE, device="cpu").score(*_list(0))
    expected = -np.mean([np.log(shares[0]), *np.log(1 - shares[1:])])
    assert trained.losses[0][1] == pytest.approx(expected, rel=1e-3)
    assert json.loads((tmp_path / "new" / "asked.json").read_text()) == {"instruction": JUDGE, "tokens": 64}


def _list(row: int) -> tuple[str, list[str]]:
    query, *texts = ROWS[row]
    return query, texts


@pytest.mark.parametrize("train", [train_bi_encoder, train_reranker])
def test_a_model_that_is_not_there_is_named(train: Any, tmp_path: Path) -> None:  # noqa: ANN401
    (tmp_path / "bare").mkdir()
    with pytest.raises(ModelMismatch, match=str(tmp_path / "bare")):
        train(str(tmp_path / "bare"), ROWS, HOW, tmp_path / "new")


@pytest.mark.parametrize("package", ["datasets", "accelerate"])
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    with pytest.raises(WrongInput, match=f"needs the package {package}: pip install"):
        require_training()
