"""A question to an LLM, and the key under which its answer is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from storage.errors import WrongInput


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is drawn; every field is part of the answer's key.

    Raises:
        WrongInput: A number is out of its range.
    """

    temperature: float = 0.0  # 0 or more; at 0 the likeliest token is taken each time
    seed: int | None = 0  # for servers that have one; None sends none
    max_tokens: int = 1024  # the longest answer, at least 1; what a model thinks before it answers counts
    top_p: float | None = None  # in (0, 1]; None sends none

    def __post_init__(self) -> None:
        top_p_fits = self.top_p is None or 0 < self.top_p <= 1
        if not (self.temperature >= 0 and self.max_tokens >= 1 and top_p_fits):
            raise WrongInput(f"{self}: temperature must be 0 or more, max_tokens at least 1, top_p in (0, 1]")


@dataclass(frozen=True, slots=True)
class Question:
    """What one request asks."""

    prompt: str  # name and version of the prompt: a changed wording is a new version, hence a new key
    messages: tuple[tuple[str, str], ...]  # `(role, content)`, in order
    sampling: Sampling  # how the answer is drawn
    # JSON schema of the answer, sent where the server offers it; None asks for free text.
    schema: Mapping[str, Any] | None = None
    attempt: int = 0  # which of several answers to the same question, from 0: a judge's votes are 0, 1 and 2
    # The documents whose text is in the messages; when one is forgotten, so is the answer.
    doc_ids: tuple[str, ...] = ()

    def key(self, model: str) -> str:
        """Return the SHA-256 over model, prompt version, sampling, payload hash and attempt."""
        payload = _digest([self.messages, self.schema])
        return _digest([model, self.prompt, asdict(self.sampling), payload, self.attempt])

    def n_bytes(self) -> int:
        """Return the size of what is sent, for a guess of its tokens."""
        sent = sum(len(content.encode(errors="replace")) for _, content in self.messages)
        return sent + (len(json.dumps(dict(self.schema))) if self.schema else 0)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
