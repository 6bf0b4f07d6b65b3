"""The rules that refine applies, each by a digest: when one changes, documents are refined again."""

from __future__ import annotations

import functools
import hashlib

from tasks.refine.risks.rules import rules_digest
from tasks.refine.text.boilerplate import RULES
from tasks.refine.text.rules import rules_text


@functools.cache
def rule_digests() -> dict[str, str]:
    """Return a digest of 12 hexadecimal digits for each kind of rule."""
    boilerplate = repr([(rule.name, rule.where, rule.pattern.pattern, rule.pattern.flags) for rule in RULES])
    return {
        "risk rules": rules_digest(),
        "licences": _digest(rules_text("licences.yaml")),
        "placeholders": _digest(rules_text("placeholders.yaml")),
        "boilerplate": _digest(boilerplate),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
