from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import ModelMismatch
from tasks.models.with_torch.reranker import CausalReranker, CrossEncoder, load_reranker
from tests.support.models.tiny_models import save_cross_encoder, save_qwen3

HOW = {"instruction": "judge the skill", "device": "cpu"}


def test_the_architecture_of_a_checkpoint_decides_how_it_scores(tmp_path: Path) -> None:
    causal = load_reranker(str(save_qwen3(tmp_path / "causal")), max_tokens=40, **HOW)
    cross = load_reranker(str(save_cross_encoder(tmp_path / "cross")), max_tokens=40, **HOW)
    assert (type(causal), type(cross)) == (CausalReranker, CrossEncoder)
    for model in (causal, cross):
        assert len(model.score("bake bread", ["honey", "bread"])) == 2
        assert model.offsets("rye bread") == [(0, 3), (4, 9)]
        assert model.count(["rye bread", ""]) == [2, 0]


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match=f"model {tmp_path} cannot be loaded"):
        load_reranker(str(tmp_path), max_tokens=40, **HOW)
