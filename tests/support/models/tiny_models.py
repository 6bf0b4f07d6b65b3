"""Tiny transformers of the architectures that routing's published pipelines use, made and saved by tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

library: Any = transformers
_MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_WORDS = tuple(
    re.findall(
        r"\w+",
        """
    a about after all and bake bread cake clean corner cut dough edge find fold for from glue grow hive honey
    hole how into judge knead light list loaf make mend mites name new no of oven patch pedal prune pump roses
    rye seed sharp skill soil sour steel system task the thin tin to tyre use user assistant watch water wax
    wheel with yeast yes query document instruct relevant is
        """,
    )
)


def word_tokenizer(words: Sequence[str] = _WORDS, *, bert: bool = False) -> Any:  # noqa: ANN401
    """Return a tokenizer of whole words; what it does not know is one unknown token."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] if bert else ["[PAD]", "[UNK]", *_MARKS]
    signs = ["<", ">", "|", ":", ",", ".", "?", "im_start", "im_end", "think", "/"]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*special, *words, *signs]))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no secret
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if bert:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        return library.PreTrainedTokenizerFast(
            tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",  # noqa: S106
        )  # fmt: skip
    made.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", vocabulary["<|endoftext|>"])]
    )
    return library.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", eos_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=list(_MARKS[:2]),
    )  # fmt: skip


def save_qwen3(folder: Path, words: Sequence[str] = _WORDS) -> Path:
    """Save a causal model of two layers, architecture Qwen3."""
    torch.manual_seed(3)
    tokenizer = word_tokenizer(words)
    config = library.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=4096,
        pad_token_id=0, bos_token_id=None, eos_token_id=4, initializer_range=0.5, tie_word_embeddings=False,
    )  # fmt: skip
    library.Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_bi_encoder(
    folder: Path, words: Sequence[str] = _WORDS, *, width: int = 16, vocabulary: int | None = None
) -> Path:
    """Save a sentence encoder of two layers, architecture BERT with mean pooling, with room for 64 tokens.

    With a `vocabulary` beyond its words it is as large as wanted: four bytes for each of them and each of the
    `width` dimensions.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    torch.manual_seed(7)
    tokenizer = word_tokenizer(words, bert=True)
    config = library.BertConfig(
        vocab_size=vocabulary or len(tokenizer), hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64, initializer_range=0.5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    bare = folder / "bert"
    library.BertModel(config).save_pretrained(bare)
    tokenizer.save_pretrained(bare)
    transformer = Transformer(str(bare), max_seq_length=64)
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def save_cross_encoder(folder: Path, *, outputs: int = 1) -> Path:
    """Save a sequence classifier of two layers, architecture BERT, with room for 64 tokens."""
    torch.manual_seed(5)
    tokenizer = word_tokenizer(bert=True)
    config = library.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, num_labels=outputs, initializer_range=0.5,
    )  # fmt: skip
    library.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def bare_graph() -> bytes:
    """A product with `weight`, which lies elsewhere."""
    weight = numpy_helper.from_array(WEIGHT, "weight")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    held = weight.external_data.add()
    held.key, held.value = "location", "weights"
    shapes = (("rows", ["n", 2]), ("found", ["n", 3]))
    rows, found = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes)
    product = helper.make_node("MatMul", ["rows", "weight"], ["found"])
    graph = helper.make_graph([product], "product", [rows], [found], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content
