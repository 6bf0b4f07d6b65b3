"""The rules that refine goes by, each by a digest: when one changes, documents are refined anew."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

from tasks.refine.boilerplate import RULES
from tasks.refine.risks import rules_digest


@functools.cache
def rule_digests() -> dict[str, str]:
    """Return 12 hexadecimal digits by kind of rule, those that lie in data and that of boilerplate."""
    boilerplate = repr([(rule.name, rule.where, rule.pattern.pattern, rule.pattern.flags) for rule in RULES])
    return {
        "risk rules": rules_digest(),
        "licences": _digest(_data("licences.yaml")),
        "placeholders": _digest(_data("placeholders.yaml")),
        "boilerplate": _digest(boilerplate),
    }


def _data(name: str) -> str:
    return files("tasks.refine").joinpath("data", name).read_text("utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
