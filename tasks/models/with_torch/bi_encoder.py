"""A decoder as bi-encoder: the last token's state is the vector, as SkillRouter has it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.models.onnx_export import resolve
from tasks.models.protocols import Encoder, Vectors
from tasks.models.tokens import TokenSpans
from tasks.models.with_torch.device import AUTO, device_of
from tasks.models.with_torch.reranker import missing_model


class LastTokenEncoder(TokenSpans):
    """Encodes by the state of each text's last token, normalised; implements IndexEncoder.

    Loaded when first asked; Zhang et al., "Qwen3 Embedding", 2025.

    Args:
        name: A folder or a hub id, such as `pipizhao/SkillRouter-Embedding-0.6B`.
        max_tokens: A longer text is cut.
        batch: Texts encoded at a time.
        device: Where it runs, as `device_of` takes it.
    """

    def __init__(self, name: str, *, max_tokens: int = 4096, batch: int = 8, device: str = AUTO) -> None:
        self.name, self._max_tokens, self._batch, self._device = name, max_tokens, batch, device

    @functools.cached_property
    def card(self) -> dict[str, Any]:
        """What identifies its vectors: name, revision, dimension, max_tokens, pooling."""
        _, weights = resolve(self.name)
        config = self._model[0].auto_model.config
        return {
            "name": self.name,
            "revision": weights or str(getattr(config, "_commit_hash", "")),
            "dimension": config.hidden_size,
            "max_tokens": self._max_tokens,
            "pooling": "last",
        }

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
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 (torch: seconds, megabytes)
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer  # noqa: PLC0415

        try:
            transformer = Transformer(self.name, max_seq_length=self._max_tokens)
        except (OSError, ValueError) as error:
            raise missing_model(self.name, error) from error
        pooling = Pooling(transformer.get_embedding_dimension(), "lasttoken")
        return SentenceTransformer(modules=[transformer, pooling], device=device_of(self._device))


class Prefixed:
    """An encoder of queries, each after a prefix, which documents do not have; implements Encoder.

    Args:
        encoder: Encodes both sides.
        prefix: A model does best with the one it was trained with.
    """

    def __init__(self, encoder: Encoder, prefix: str) -> None:
        self._encoder, self._prefix = encoder, prefix

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a query, shape `(len(texts), dimension)`."""
        return self._encoder.encode([f"{self._prefix}{text}" for text in texts])
