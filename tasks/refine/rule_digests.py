"""The rules that refine goes by, each by a digest: when one changes, documents are refined anew."""

from __future__ import annotations

import functools
import hashlib

from tasks.refine.risks.rules import rules_digest
from tasks.refine.text.boilerplate import RULES
from tasks.refine.text.rules import rules_text


@functools.cache
def rule_digests() -> dict[str, str]:
    """Return 12 hexadecimal digits by kind of rule, those that lie in data and that of boilerplate."""
    boilerplate = repr([(rule.name, rule.where, rule.pattern.pattern, rule.pattern.flags) for rule in RULES])
    return {
        "risk rules": rules_digest(),
        "licences": _digest(rules_text("licences.yaml")),
        "placeholders": _digest(rules_text("placeholders.yaml")),
        "boilerplate": _digest(boilerplate),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
