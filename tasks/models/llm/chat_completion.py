"""The chat completion of OpenAI's protocol: which parameters a request sends, and how its reply is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tasks.models.fields import whole_of
from tasks.models.llm.budget import Usage
from tasks.models.llm.errors import LlmUnavailable
from tasks.models.llm.question import Question

_MOST_TOKENS = 10**9  # of one answer: a server that says more has not counted
_FORMATS = ("json_schema", "json_object", "none")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server takes: which optional parameters are sent, and how they are called.

    The first question finds it out; it is remembered.
    """

    response_format: str = "json_schema"  # or `json_object`, or `none`
    limit: str = "max_tokens"  # the name of the limit of tokens; or `max_completion_tokens`
    temperature: bool = True  # whether one is sent
    seed: bool = True  # whether one is sent

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


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer."""

    text: str  # empty if it said nothing, or nothing but its thoughts
    finish: str  # `stop`, `length`, `content_filter`, or what else the server calls its end
    usage: Usage | None  # as the server counted; None: it did not


def read_reply(body: str, content_type: str) -> Reply:
    """Return the completion in a body with status 200; some servers stream although nobody asked them to.

    Raises:
        LlmUnavailable: It holds no completion (`no-answer`), or only the beginning of one (`cut`).
    """
    streamed = "event-stream" in content_type or body.lstrip()[:5] == "data:"
    return _streamed(body) if streamed else _whole(_object(body))


def _whole(record: dict[str, Any]) -> Reply:
    choice = _choice(record)
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        raise _no_answer(f"no `choices` with a message in {json.dumps(record)[:200]}")
    return Reply(_text(message), str(choice.get("finish_reason") or "stop"), _usage(record))


def _streamed(body: str) -> Reply:
    parts: list[str] = []
    finish: str | None = None
    usage: Usage | None = None
    for event in _events(body):
        if event == "[DONE]":
            finish = finish or "stop"
            continue
        record = _object(event)
        usage = _usage(record) or usage
        if (choice := _choice(record)) is not None:
            delta = choice.get("delta")
            parts.append(_text(delta) if isinstance(delta, dict) else "")
            finish = choice.get("finish_reason") or finish
    if finish is None:
        reason, detail = "cut", "the stream ended before the answer did"
        raise LlmUnavailable(reason, detail)
    return Reply("".join(parts), str(finish), usage)


def _events(body: str) -> Iterator[str]:
    lines = body.replace("\r\n", "\n").split("\n")
    return (line.removeprefix("data:").strip() for line in lines if line.startswith("data:"))


def _object(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_answer(f"no JSON but {text[:200]!r}") from error
    if not isinstance(record, dict):
        raise _no_answer(f"no JSON object but {text[:200]!r}")
    if record.get("error") and not record.get("choices"):
        raise _no_answer(json.dumps(record["error"])[:200])
    return record


def _choice(record: dict[str, Any]) -> dict[str, Any] | None:
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _usage(record: dict[str, Any]) -> Usage | None:
    usage = record.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = (whole_of(usage.get(f"{n}_tokens"), _MOST_TOKENS) for n in ("prompt", "completion"))
    return None if prompt is None or completion is None else Usage(prompt, completion)


def _no_answer(detail: str) -> LlmUnavailable:
    return LlmUnavailable("no-answer", f"the server did not answer as the OpenAI protocol says: {detail}")
