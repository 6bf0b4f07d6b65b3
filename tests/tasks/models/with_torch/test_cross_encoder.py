from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from storage.errors import ModelMismatch
from tasks.models.with_torch.reranker import CausalReranker, CrossEncoder, load_reranker
from tests.support.models.tiny_models import library, save_cross_encoder, save_qwen3

TEXTS = ["mend a tyre with glue", "bake a loaf", "bake rye bread with sour dough and yeast in the oven"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_cross_encoder(tmp_path_factory.mktemp("cross") / "bert")


def one_by_one(folder: Path, query: str, texts: list[str]) -> list[float]:
    """Return what transformers itself makes of each pair, alone and hence without padding."""
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    model = library.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = [model(**tokenizer(query, t, return_tensors="pt")).logits.item() for t in texts]
    return [float(torch.sigmoid(torch.tensor(logit))) for logit in logits]


def test_a_batch_of_pairs_scores_as_each_pair_alone(folder: Path) -> None:
    scores = CrossEncoder(str(folder), batch=2).score("bake bread", TEXTS)
    assert scores == pytest.approx(one_by_one(folder, "bake bread", TEXTS), abs=1e-5)
    assert len(set(scores.round(4).tolist())) == 3


def test_the_query_counts(folder: Path) -> None:
    model = CrossEncoder(str(folder))
    assert not np.allclose(model.score("bake bread", TEXTS), model.score("prune roses", TEXTS))


def test_what_is_longer_than_the_model_reads_is_cut(folder: Path) -> None:
    model = CrossEncoder(str(folder), max_tokens=4096)
    long = " ".join(["honey"] * 500)
    scores = model.score("bake bread", [long, f"{long} wax", "honey"])
    assert scores[0] == pytest.approx(scores[1])
    assert scores[0] != pytest.approx(scores[2])


def test_fewer_tokens_are_read_where_asked_for(folder: Path) -> None:
    short, whole = CrossEncoder(str(folder), max_tokens=10), CrossEncoder(str(folder), max_tokens=40)
    text = "bake rye bread with sour dough and yeast in the oven"
    assert short.score("bread", [text]) != pytest.approx(whole.score("bread", [text]))


def test_a_long_query_leaves_each_text_the_tokens_that_it_may_have(folder: Path) -> None:
    model = CrossEncoder(str(folder), max_tokens=3)
    query = " ".join(["bake", "bread", "oven"] * 5)
    cut, whole, other = model.score(query, ["honey wax mites", "honey wax mites hive", "honey wax tyre hive"])
    assert cut == pytest.approx(whole)
    assert cut != pytest.approx(other)
    assert cut == pytest.approx(one_by_one(folder, query, ["honey wax mites"])[0], abs=1e-5)


def test_no_texts_have_no_scores(folder: Path) -> None:
    assert CrossEncoder(str(folder)).score("bread", []).shape == (0,)


def test_a_classifier_of_several_classes_is_no_reranker(tmp_path: Path) -> None:
    several = save_cross_encoder(tmp_path / "three", outputs=3)
    with pytest.raises(ModelMismatch, match="3 outputs"):
        CrossEncoder(str(several)).score("bread", TEXTS)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch, match=f"model {tmp_path} cannot be loaded"):
        CrossEncoder(str(tmp_path)).score("bread", TEXTS)


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
