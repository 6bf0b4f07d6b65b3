"""Embeddings of an OpenAI-compatible endpoint, as an encoder: what runs on no machine of one's own."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from storage.errors import SkilleryError
from tasks.models.llm.budget import Ledger, Usage, guessed_tokens
from tasks.models.llm.client import Endpoint, require_openai
from tasks.models.llm.errors import BudgetSpent, LlmUnavailable, error_of_status
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit

_AT_ONCE = 64  # texts of one question
# A run of letters without spaces is many tokens.
_PIECE = re.compile(r"\w{1,12}|[^\w\s]")


class ApiEncoder:
    """Encodes by a model of an endpoint; implements IndexEncoder.

    What such a model takes for a token is not told: here it is a word, twelve letters at most, or a sign.
    `name` is the model's there, such as `text-embedding-3-large`; tokens cost what a prompt's do.
    """

    def __init__(self, endpoint: Endpoint, name: str, ledger: Ledger) -> None:
        require_openai()
        self._endpoint, self._name, self._ledger = endpoint, name, ledger

    @functools.cached_property
    def card(self) -> dict[str, Any]:
        """What identifies its vectors: name, revision, dimension, max_tokens, pooling."""
        dimension = self.encode(["a"]).shape[1]
        return {
            "name": self._name, "revision": self._endpoint.base_url, "dimension": dimension,
            "max_tokens": None, "pooling": "api",
        }  # fmt: skip

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, float32 of shape `(len(texts), dimension)`.

        Raises:
            LlmDenied, LlmRefused: The server denies access, has no such model, or refuses a text.
            LlmUnavailable: No answer came.
            BudgetSpent: The ceiling is reached.
        """
        parts = [self._asked(texts[start : start + _AT_ONCE]) for start in range(0, len(texts), _AT_ONCE)]
        return (
            unit(np.concatenate(parts)) if parts else np.zeros((0, int(self.card["dimension"])), np.float32)
        )

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of words and signs of each text."""
        return [len(_PIECE.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the character span of each word and sign, in order."""
        return [found.span() for found in _PIECE.finditer(text)]

    def _asked(self, texts: Sequence[str]) -> Vectors:
        library = importlib.import_module("openai")
        # An empty text is refused; a blank one has a vector.
        given = [text or " " for text in texts]
        size = sum(len(text.encode(errors="replace")) for text in given)
        if (reserved := self._ledger.reserve(size, 0)) is None:
            raise BudgetSpent("the ceiling does not hold these texts beside what is asked now")
        try:
            with library.OpenAI(
                base_url=self._endpoint.base_url, api_key=self._endpoint.api_key or "none",
                timeout=self._endpoint.timeout, max_retries=self._endpoint.retry.tries - 1,
            ) as client:  # fmt: skip
                answer = client.embeddings.create(model=self._name, input=given, encoding_format="float")
        except library.APIError as error:
            raise self._failure(error) from error
        else:
            used = getattr(getattr(answer, "usage", None), "prompt_tokens", None)
            self._ledger.counts["requests"] += 1
            self._ledger.spend(Usage(used or guessed_tokens(size), 0, counted=bool(used)))
        finally:
            self._ledger.release(reserved)
        found: Any = getattr(answer, "data", None)
        try:
            found = [row.embedding for row in sorted(found, key=lambda row: row.index)]
            vectors = np.array(found, np.float32)
        except (AttributeError, TypeError, ValueError) as error:
            raise LlmUnavailable("no-answer", "the answer holds no vectors of one length") from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise LlmUnavailable("no-answer", f"{len(vectors)} vectors of {len(texts)} texts")
        return vectors

    def _failure(self, error: Any) -> SkilleryError:  # noqa: ANN401 (of an optional package)
        key, said = self._endpoint.api_key, str(error)
        said = said.replace(key, "***") if key else said
        if (answer := getattr(error, "response", None)) is None:
            return LlmUnavailable("connection", said)
        return error_of_status(answer.status_code, answer.headers, said, datetime.now(UTC))
