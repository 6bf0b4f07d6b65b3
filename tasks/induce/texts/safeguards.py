"""Safeguards: secrets are redacted in what an LLM is sent, and what it wrote is checked before it is kept."""

from __future__ import annotations

import re
from typing import Any

from tasks.models.llm.quoting import addresses_the_reader
from tasks.models.redact import redact
from tasks.models.visible import visible
from tasks.refine.risks.scan import scan

_LINK = re.compile(r"://|\bwww\.|\bmailto:|\]\(", re.IGNORECASE)
# A sentence about a page names what is done; it tells nobody what to do.
_SPOKEN_TO = re.compile(
    r"\b(?:you|yourself|assistants?|agents?|language models?|llms?|instructions?|prompts?)\b", re.IGNORECASE
)


def redacted(value: Any) -> Any:  # noqa: ANN401
    """Return a value of JSON with the secrets in its texts redacted."""
    if isinstance(value, dict):
        return {name: redacted(each) for name, each in value.items()}
    if isinstance(value, list):
        return [redacted(each) for each in value]
    return redact(value)[0] if isinstance(value, str) else value


def unfit(text: str) -> str | None:
    """Return why a text by an LLM may not be kept; None if it may.

    It may hold no secret, no link, no sign that is not seen, and nothing that addresses its reader: it was
    written about pages, and a page may have said it.
    """
    if visible(text) != text:
        return "holds line ends or signs that are not seen"
    if redact(text)[0] != text:
        return "holds what looks like a secret"
    if _LINK.search(text):
        return "holds a link"
    if _SPOKEN_TO.search(text) or gives_orders(text):
        return "addresses its reader"
    return None


def gives_orders(text: str) -> bool:
    """Tell whether a text tells a model what to do, or to run what is risky, as a label of a page may."""
    return addresses_the_reader(text) or bool(scan(text))
