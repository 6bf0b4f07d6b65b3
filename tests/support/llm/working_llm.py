"""A language model of the tests that works by the skill that it is given, and judges by shared words."""

from __future__ import annotations

import json
import re

from tests.support.llm.llm_server import Asked


def works(asked: Asked) -> str:
    """Answer a request by the skill's text, else by shrugging; an expectation is met whose words are said."""
    first, *others = asked.fragments
    if "answer" not in first:
        return others[0]["text"] if others else "I would look into it."
    said = set(re.findall(r"\w+", first["answer"].lower()))
    met = [one["number"] for one in others if set(re.findall(r"\w+", one["expectation"].lower())) <= said]
    return json.dumps({"met": met})
