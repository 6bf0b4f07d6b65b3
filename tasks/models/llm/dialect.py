"""The dialect of the OpenAI protocol that a server takes: found by the first question, remembered."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from tasks.models.llm.question import Question

_FORMATS = ("json_schema", "json_object", "none")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which optional parameters are sent, and how they are called.

    Args:
        response_format: `json_schema`, `json_object` or `none`.
        limit: The name of the limit of tokens: `max_tokens` or `max_completion_tokens`.
        temperature, seed: Whether one is sent.
    """

    response_format: str = "json_schema"
    limit: str = "max_tokens"
    temperature: bool = True
    seed: bool = True

    def arguments(self, question: Question) -> dict[str, Any]:
        """Return the parameters of the request beside model and messages."""
        sampling = question.sampling
        sent: dict[str, Any] = {self.limit: sampling.max_tokens}
        if self.temperature:
            sent["temperature"] = sampling.temperature
        if self.temperature and sampling.top_p is not None:
            sent["top_p"] = sampling.top_p
        if self.seed and sampling.seed is not None:
            sent["seed"] = sampling.seed
        if question.schema is not None and self.response_format != "none":
            sent["response_format"] = self._format(question)
        return sent

    def _format(self, question: Question) -> dict[str, Any]:
        if self.response_format == "json_object":
            return {"type": "json_object"}
        name = "".join(c if c.isalnum() else "_" for c in question.prompt)
        schema = {"name": name, "strict": True, "schema": dict(question.schema or {})}
        return {"type": "json_schema", "json_schema": schema}

    def poorer(self, complaint: str, question: Question) -> Dialect | None:
        """Return the dialect to try after a refusal; None: there is nothing left to go without.

        A parameter that the complaint names goes first, else the response format of the question.
        """
        words = complaint.lower()
        if self.limit == "max_tokens" and "max_completion_tokens" in words:
            return replace(self, limit="max_completion_tokens")
        if self.temperature and ("temperature" in words or "top_p" in words):
            return replace(self, temperature=False)
        if self.seed and "seed" in words:
            return replace(self, seed=False)
        if question.schema is None or self.response_format == "none":
            return None
        return replace(self, response_format=_FORMATS[_FORMATS.index(self.response_format) + 1])

    def dumps(self) -> str:
        """Return it as text, to be remembered."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Self:
        """Return what `dumps` wrote."""
        return cls(**json.loads(text))
