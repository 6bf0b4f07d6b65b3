"""Cross-encoders: a query and a text are read together, and scored."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from storage.errors import ModelMismatch
from tasks.models.tokens import first_tokens
from tasks.models.with_torch.device import AUTO, device_of
from tasks.models.with_torch.token_spans import TokenSpans

PairScores = npt.NDArray[np.float64]


class PairScorer(Protocol):
    """Scores texts against a query, each pair by itself; higher is better."""

    def score(self, query: str, texts: Sequence[str]) -> PairScores:
        """Return a score a text, shape `(len(texts),)`."""


class CrossEncoder(TokenSpans):
    """A sequence classifier with one output, loaded when first asked (Nogueira and Cho, 2019).

    Args:
        name: A folder or a hub id, such as `cross-encoder/ms-marco-MiniLM-L-6-v2`.
        max_tokens: Each text is cut to so many tokens (SkillFlow, equations 2 and 4); query and text
            together to what the model reads, the longer first.
        batch: Pairs scored at a time.
        device: Where it runs, as `device_of` takes it.
    """

    def __init__(self, name: str, *, max_tokens: int = 512, batch: int = 32, device: str = AUTO) -> None:
        self.name, self._max_tokens, self._batch, self._device = name, max_tokens, batch, device

    def score(self, query: str, texts: Sequence[str]) -> PairScores:
        """Return the model's score of each text, shape `(len(texts),)`.

        Raises:
            ModelMismatch: There is no such model, or it has more than one output.
        """
        if not texts:
            return np.zeros(0)
        pairs = [(query, first_tokens(text, self._max_tokens, self)) for text in texts]
        scores = self._model.predict(pairs, batch_size=self._batch, show_progress_bar=False)
        return np.asarray(scores, dtype=np.float64)

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 (transformers has no common type)
        """The model's own."""
        return self._model.tokenizer

    @functools.cached_property
    def _model(self) -> Any:  # noqa: ANN401 (a class of a library that is loaded here alone)
        from sentence_transformers import CrossEncoder as Loaded  # noqa: PLC0415 (torch: seconds, megabytes)

        try:
            model = Loaded(self.name, device=device_of(self._device))
        except (OSError, ValueError) as error:
            raise missing_model(self.name, error) from error
        if model.num_labels != 1:
            msg = f"{self.name} has {model.num_labels} outputs, a reranker has one: name another model"
            raise ModelMismatch(msg)
        longest = model.tokenizer.model_max_length
        model.max_seq_length = min(getattr(model.model.config, "max_position_embeddings", longest), longest)
        return model


def missing_model(name: str, error: Exception) -> ModelMismatch:
    """Return the error of a model that cannot be loaded, with what to do."""
    reason = " ".join(str(error).split())[:300]
    return ModelMismatch(
        f"model {name} cannot be loaded ({reason}): name a folder that holds it, or a hub id"
    )
