"""Faults: why a text is no request that a person would make."""

from __future__ import annotations

import re
from typing import Literal

from tasks.retrieve.train.pairs.verbs import base_verbs

Fault = Literal[
    "too_short", "too_long", "not_english", "placeholder", "code", "third_person", "about_the_skill",
    "broken", "keywords",
]  # fmt: skip
WORDS = 3, 60

"""The least and the most words of a request, between blanks."""

_OTHER_TONGUE = re.compile(
    r"(?i)\b(?:que|para|una|como|und|der|mit|für|eine?|pour|les|des|avec|cho|của|não|uma|il|della|het|een)\b"
)
_PLACEHOLDER = re.compile(
    r"\[[^\]]*\]|<[^>]*>|\{[^}]*\}|\$\w|\$\{"
    r"|\.\.\.|…|\b[A-Z]{2,}_[A-Z_]+\b|(?<!\w)(?:XX*|Y|N)(?![\w-])|\bfoo\b"
)
_CODE = re.compile(
    r"https?://|[{}<>|=\\;]|(?:^|\s)--?\w|(?:^|\s)[/~.]+\w|\w\(\)|\w+\.\w+\(|\w::\w|\?\.\w|^[$@#!]"
    r"|(?:[\w.-]+/){2,}[\w.-]+"
    r"|\w/[\w.-]+\.(?:md|py|json|ya?ml|sh|[jt]sx?)\b"
)
_THIRD = re.compile(
    r"(?i)\b(?:(?:the|a)\s+users?|users?\s+(?:says?|asks?|wants?|mentions?)|they|them|he|she)\b"
)
_SKILL = re.compile(
    r"(?i)\b(?:this|the|other|another) (?:skill|agent|command|tool|workflow|guide)s?\b"
    r"|\bskill\.md\b|\bskills? covering\b|\btasks or workflows\b"
    r"|\bthe plugin\b"
    r"|\bsubagents?\b|\bwhen (?:to )?use\b|\btrigger(?:s|ed)? (?:on|when|by)\b|\bsee (?:also|references?)\b"
)
_BROKEN_END = re.compile(
    r"(?i)\b(?:and|or|the|a|an|to|for|with|of|in|on|by|from|when|if|etc|e\.?g|i\.?e|like|as"
    r"|(?:is|are) (?:required|needed|necessary)\b.*"
    r"|especially|including|using|via|without|between|into|new|significant)$"
)

# A list that goes on with a gerund, after an imperative.
_MIXED = re.compile(
    r", (?:and |or )?(?!including|using|excluding|involving|avoiding|ensuring|according|following|during"
    r"|spring|string|missing|existing|billing|pricing|landing|loading|streaming|training|testing)"
    r"[a-z]+ing (?!or |and )"
)


def fault_of(query: str) -> Fault | None:
    """Return the first fault of a request, None if it has none."""
    words = query.split()
    if len(words) < WORDS[0]:
        return "too_short"
    if len(words) > WORDS[1]:
        return "too_long"
    found: tuple[tuple[Fault, object], ...] = (
        ("not_english", _foreign(query)),
        ("placeholder", _PLACEHOLDER.search(query)),
        ("code", _CODE.search(query)),
        ("third_person", _THIRD.search(query)),
        ("about_the_skill", _SKILL.search(query)),
        ("broken", _BROKEN_END.search(query) or _MIXED.search(query) or query.count("(") != query.count(")")),
        ("keywords", _lists_keywords(query)),
    )
    return next((fault for fault, is_found in found if is_found), None)


def _foreign(query: str) -> bool:
    letters = [c for c in query if c.isalpha()]
    return sum(c.isascii() for c in letters) < 0.98 * len(letters) or bool(_OTHER_TONGUE.search(query))


def _lists_keywords(query: str) -> bool:
    parts, first = query.split(","), query.split(maxsplit=1)[0].lower()
    least = 6 if first in base_verbs() else 3
    return len(parts) >= least and max(len(part.split()) for part in parts) <= 3
