"""Told risks: a finding as it is kept, taken apart for whoever decides on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tasks.refine.risks.hits import rule_id
from tasks.refine.risks.rules import risk_rules

_PLACE = r"(?:(?P<file>.*), )?(?:line (?P<line>\d+)(?: to \d+)?: )?"


def told_risk(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding with its `rule`, `file` (null: SKILL.md's own text), `line`, `text`, `why`, `accept`.

    `text` is what was hit, its control characters visible and its keys redacted; `why` says why it matters,
    and `accept` what accepts it. Of a message that a rule of now did not write, or that is null since its
    text is kept back, file, line and text are null.
    """
    rule = rule_id(found["code"])
    known = risk_rules().by_id.get(rule)
    parts: dict[str, str | None] = {}
    if known is not None and found["message"] is not None:
        match = re.fullmatch(f"{_PLACE}{re.escape(known.description)}: (?P<text>.*)", found["message"])
        parts = match.groupdict() if match else {}
    line = parts.get("line")
    why = risk_rules().why.get(rule.partition(".")[0])
    return {
        **found, "rule": rule, "file": parts.get("file"), "line": None if line is None else int(line),
        "text": parts.get("text"), "why": why, "accept": None if known is None else f"--accept-risk {rule}",
    }  # fmt: skip
