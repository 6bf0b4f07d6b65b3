"""Hits of risks: what the rules of a skill's findings hit in its files, and a finding taken apart."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.schemas import Finding
from tasks.refine.risks.contents import read_contents
from tasks.refine.risks.files import analysed
from tasks.refine.risks.rules import risk_rules
from tasks.refine.risks.scan import hit_digests

HELD = "revision.held"  # the code of the finding that a newer revision is not served for its risks
_RISK = "risk."
OPINION = "risk.opinion."  # begins the codes of what a language model found
_PLACE = re.compile(r"\bline \d+(?: to \d+)?: ")
_BEFORE = r"(?:(?P<file>.*), )?(?:line (?P<line>\d+)(?: to \d+)?: )?"  # what a message tells first
UNSCANNED = "unscanned."  # begins the rules of what could not be read
GRAVE = ("error", "warning")  # the severities that are told where a revision adds them


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

    Of a risk that an analysis finds, it is the whole file. Of one that nothing finds in a file as it is kept,
    it is what was said of it, wherever that stands.
    """
    said: dict[str, list[str]] = {}
    for risk in risks:
        said.setdefault(rule_id(risk.code), []).append(_PLACE.sub("", risk.message))
    readings = {path: read_contents(content, path) for path, content in contents.items()} if said else {}
    texts = [text for reading in readings.values() for text in reading.texts]
    digests = hit_digests([text.text for text in texts], said) if said else []
    found = [
        RiskHit(rule, text.path, digest)
        for text, by_rule in zip(texts, digests, strict=True)
        for rule, digest in by_rule.items()
    ]
    # What could not be read is another once any byte of its file is.
    found += [
        RiskHit(hit.rule, at, hashlib.sha256(contents[path]).hexdigest())
        for path, reading in readings.items()
        for at, hit in reading.hits
        if hit.rule in said
    ]
    # What code does hangs on lines that no finding names, such as the one that sets an address.
    by_code = {rule.id for rule in risk_rules().rules if rule.by and rule.id in said}
    found += [
        RiskHit(rule, text.path, hashlib.sha256(contents[path]).hexdigest())
        for path, reading in readings.items()
        for text in (reading.texts if by_code else ())
        for rule in by_code.intersection(rule_id(one.code) for one in analysed(text))
    ]
    unseen = {rule: "\n".join(said[rule]).encode() for rule in said.keys() - {hit.rule for hit in found}}
    return sorted([*found, *(RiskHit(r, "", hashlib.sha256(m).hexdigest()) for r, m in unseen.items())])


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
        match = re.fullmatch(f"{_BEFORE}{re.escape(known.description)}: (?P<text>.*)", found["message"])
        parts = match.groupdict() if match else {}
    line = parts.get("line")
    why = risk_rules().why.get(rule.partition(".")[0])
    return {
        **found, "rule": rule, "file": parts.get("file"), "line": None if line is None else int(line),
        "text": parts.get("text"), "why": why, "accept": None if known is None else f"--accept-risk {rule}",
    }  # fmt: skip
