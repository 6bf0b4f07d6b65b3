"""Bi-encoders that torch runs: a decoder's last token as SkillRouter has it, or a model's own pooling."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tasks.models.onnx_export import resolve
from tasks.models.protocols import Encoder, Vectors
from tasks.models.tokens import TokenSpans
from tasks.models.with_torch.device import AUTO, device_of
from tasks.models.with_torch.reranker import missing_model


def instructed(instruction: str) -> str:
    """Return what stands before a query, as Qwen3's encoders were trained."""
    return f"Instruct: {instruction}\nQuery: "


class TorchEncoder(TokenSpans):
    """Encodes by the state of each text's last token, normalised, or as a model itself does.

    Implements IndexEncoder. Loaded when first asked; Zhang et al., "Qwen3 Embedding", 2025. `name` is a
    folder or a hub id, such as `pipizhao/SkillRouter-Embedding-0.6B`. The pooling `own` is that of a
    sentence-transformers model, which may read less; `trusted`: code that comes with the model is run.
    """

    def __init__(
        self, name: str, *, max_tokens: int = 4096, batch: int = 8, device: str = AUTO,
        pooling: Literal["last", "own"] = "last", trusted: bool = False,
    ) -> None:  # fmt: skip
        self.name, self._max_tokens, self._batch, self._device = name, max_tokens, batch, device
        self._pooling, self._trusted = pooling, trusted

    @functools.cached_property
    def card(self) -> dict[str, Any]:
        """What identifies its vectors: name, revision, dimension, max_tokens, pooling."""
        _, weights = resolve(self.name)
        revision = weights or str(getattr(self._model[0].auto_model.config, "_commit_hash", ""))
        return {
            "name": self.name, "revision": revision, "dimension": self._model.get_embedding_dimension(),
            "max_tokens": self._model.max_seq_length, "pooling": self._pooling,
        }  # fmt: skip

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, float32 of shape `(len(texts), dimension)`.

        Raises:
            ModelMismatch: There is no such model.
        """
        if not texts:
            return np.zeros((0, int(self.card["dimension"])), dtype=np.float32)
        vectors = self._model.encode(
            list(texts), batch_size=self._batch, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The model's own."""
        return self._model.tokenizer

    @functools.cached_property
    def _model(self) -> Any:  # noqa: ANN401 (a class of a library that is loaded here alone)
        device = device_of(self._device)
        return sentence_model(self.name, self._max_tokens, device, self._pooling, self._trusted)


def sentence_model(
    name: str, max_tokens: int, device: str, pooling: Literal["last", "own"], trusted: bool = False
) -> Any:  # noqa: ANN401 (a class of a library that is loaded here alone)
    """Return a SentenceTransformer of a folder or hub id; raises `ModelMismatch` where there is none."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 (torch: seconds, megabytes)
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer  # noqa: PLC0415

    place = resolve(name)[0] if pooling == "own" else name
    try:
        if pooling == "own":
            model = SentenceTransformer(place, device=device, trust_remote_code=trusted)
            model.max_seq_length = min(max_tokens, model.max_seq_length or max_tokens)
            return model
        own = {"trust_remote_code": trusted}  # said, else the library asks the person at the terminal
        transformer = Transformer(
            place, max_seq_length=max_tokens, model_kwargs=own, processor_kwargs=own, config_kwargs=own
        )
    except (OSError, ValueError, AttributeError) as error:
        raise missing_model(name, error) from error
    last = Pooling(transformer.get_embedding_dimension(), "lasttoken")
    return SentenceTransformer(modules=[transformer, last], device=device)


class Prefixed:
    """An encoder of queries, each after a prefix, which documents do not have; implements Encoder."""

    def __init__(self, encoder: Encoder, prefix: str) -> None:
        self._encoder, self._prefix = encoder, prefix

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a query, shape `(len(texts), dimension)`."""
        return self._encoder.encode([f"{self._prefix}{text}" for text in texts])
