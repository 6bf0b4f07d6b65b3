"""Boilerplate that aggregators add to skills, as rules in data; a new rule is a new row."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from storage.schemas import Finding
from tasks.refine.text.findings import finding

# Each pattern ends at the text's end (the same words inside a text are its author's), so only so many last
# characters are searched.
_WITHIN_CHARS = 1000
Where = Literal["description", "body"]


class BoilerplateRule(NamedTuple):
    """A text to remove: the rule's name, the field it stands in, and its pattern."""

    name: str
    where: Where
    pattern: re.Pattern[str]


_TRAILER = re.compile(
    r"(?:^-{3,}[ \t]*\n\s*)?^> Source: [^\n]*distributed by \[?TomeVault\b[^\n]*"
    r"(?:\s*<!-- tomevault:[^\n]*-->)?\s*\Z",
    re.MULTILINE,
)
_COMMENT = re.compile(r"^<!-- tomevault:[^\n]*-->\s*\Z", re.MULTILINE)
_DESCRIPTION = re.compile(r"(?:\A|(?<=\s))Use when this capability is needed\.\s*\Z")
RULES: tuple[BoilerplateRule, ...] = (
    BoilerplateRule("tomevault-trailer", "body", _TRAILER),
    BoilerplateRule("tomevault-comment", "body", _COMMENT),
    BoilerplateRule("tomevault-description", "description", _DESCRIPTION),
)


def strip_boilerplate(text: str, where: Where) -> tuple[str, tuple[Finding, ...]]:
    """Return the text without that field's known boilerplate, and a finding for each rule that hit."""
    found: list[Finding] = []
    for rule in (rule for rule in RULES if rule.where == where):
        if hit := rule.pattern.search(text, max(0, len(text) - _WITHIN_CHARS)):
            found.append(finding("boilerplate.removed", rule.name))
            text = text[: hit.start()].rstrip()
    return text, tuple(found)
