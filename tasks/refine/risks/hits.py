"""Hits of risks: what the rules of a skill's findings hit in its files, to tell which of them are new."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.schemas import Finding
from tasks.refine.risks.scan import hit_digests
from tasks.refine.text.encodings import scanned

HELD = "revision.held"
"""The code of the finding that a newer revision is not served for its risks."""
_RISK = "risk."
_PLACE = re.compile(r"\bline \d+(?: to \d+)?: ")
GRAVE = ("error", "warning")
"""The severities that are told where a revision adds them."""


@dataclass(frozen=True, order=True, slots=True)
class RiskHit:
    """What a rule of risks hits in a file: the SHA-256 of the lines, or of what was said of it (no file)."""

    rule: str
    file: str
    sha256: str


def rule_id(code: str) -> str:
    """Return the id of a risk rule, of the code of a finding or as a person wrote it."""
    return code.removeprefix(_RISK)


def risk_hits(risks: Sequence[Finding], contents: Mapping[str, bytes]) -> list[RiskHit]:
    """Return what the rules of a skill's risks hit in its files, sorted.

    Of a risk that no pattern finds in a file as it is kept, it is what was said of it, wherever that stands.
    """
    said: dict[str, list[str]] = {}
    for risk in risks:
        said.setdefault(rule_id(risk.code), []).append(_PLACE.sub("", risk.message))
    digests = hit_digests([scanned(content) for content in contents.values()], said) if said else []
    found = [
        RiskHit(rule, path, digest)
        for path, by_rule in zip(contents, digests, strict=bool(said))
        for rule, digest in by_rule.items()
    ]
    unseen = {rule: "\n".join(said[rule]).encode() for rule in said.keys() - {hit.rule for hit in found}}
    return sorted([*found, *(RiskHit(r, "", hashlib.sha256(m).hexdigest()) for r, m in unseen.items())])
