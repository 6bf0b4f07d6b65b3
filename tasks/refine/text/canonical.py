"""Canonical text: equal for two copies of one text whatever their systems, and hashed."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Literal, NamedTuple

from storage.schemas import Finding
from tasks.refine.text.markdown import fenced
from tasks.refine.text.rules import finding

# The largest share of control characters in a text: in compressed bytes about a quarter is some.
MAX_CONTROL_SHARE = 0.1
# Control characters but tab and newline, and lone surrogates, which no UTF-8 file can hold.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ASCII_CONTROL = bytes({*range(32), 127} - {*b"\t\n\r"})
_HIGH_CONTROL = re.compile(rb"\xc2[\x80-\x9f]|\xed[\xa0-\xbf]")
# NFC takes time quadratic in the marks on one letter; no script needs more than a few.
MAX_STACKED_MARKS = 100
_MAYBE_STACKED = re.compile(
    f"[^\x00-\u02ff\u3041-\u3096\u30a1-\u9fff\uac00-\ud7a3]{{{MAX_STACKED_MARKS + 1},}}"
)
_LEADING_BLANK = re.compile(r"\A(?:[ \t]*\n)+")


def control_share(text: str) -> float:
    """Return the share of control characters in a text, 0 to 1; line ends and tabs are none."""
    # Of bytes, those of ASCII are counted several times sooner.
    encoded = text.encode("utf-8", "surrogatepass")
    of_ascii = len(encoded) - len(encoded.translate(None, _ASCII_CONTROL))
    return (of_ascii + len(_HIGH_CONTROL.findall(encoded))) / max(len(text), 1)


def _unstacked(match: re.Match[str]) -> str:
    kept = []
    stacked = 0
    for character in match[0]:
        stacked = stacked + 1 if unicodedata.combining(character) else 0
        if stacked <= MAX_STACKED_MARKS:
            kept.append(character)
    return "".join(kept)


def _without_trailing_space(text: str) -> str:
    """Drop trailing space outside code fences; a Markdown hard break becomes exactly two spaces."""
    if " \n" not in text and "\t\n" not in text:
        return text
    lines = text.split("\n")
    inside, _ = fenced(lines)
    for i, line in enumerate(lines):
        bare = line.rstrip(" \t")
        # Inside a fence space is content: an empty context line of a patch is one space.
        if inside[i] or bare == line:
            continue
        is_mark = bare.lstrip(" \t>")[:3] in {"", "```", "~~~"}
        followed = i + 1 < len(lines) and lines[i + 1].strip(" \t")
        lines[i] = bare + "  " if line.endswith("  ") and followed and not is_mark else bare
    return "\n".join(lines)


def canonical(text: str) -> tuple[str, tuple[Finding, ...]]:
    """Return the canonical form of a text, and a finding for each kind of change; idempotent.

    Newlines become LF. Unicode is composed (NFC), with at most 100 marks on one letter. Removed are
    byte-order marks, control characters but tab and newline, blank lines at both ends with the last newline,
    and trailing space, except inside code fences and in Markdown hard breaks, which become two spaces.
    """
    found: list[Finding] = []
    if "\r" in text:
        found.append(finding("document.crlf"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\ufeff" in text:
        found.append(finding("document.bom"))
        text = text.replace("\ufeff", "")
    if control := _CONTROL.findall(text):
        removed = f"{len(control)} control characters were removed"
        found.append(finding("document.control-characters", removed))
        text = _CONTROL.sub("", text)
    if lost := text.count("\ufffd"):
        found.append(finding("document.replacement-characters", f"{lost} characters were lost"))
    # Composed after removing: a removed character may have kept a letter and its accent apart.
    if not text.isascii():
        foreign = len(text) - len(text.encode("ascii", "ignore"))
        unstacked = _MAYBE_STACKED.sub(_unstacked, text) if foreign > MAX_STACKED_MARKS else text
        found.extend([finding("document.stacked-marks")] if unstacked != text else [])
        text = unicodedata.normalize("NFC", unstacked)
    return _LEADING_BLANK.sub("", _without_trailing_space(text)).rstrip(), tuple(found)


# Each pattern ends at the text's end (the same words inside a text are its author's), so only so many last
# characters are searched.
_WITHIN_CHARS = 1000
Where = Literal["description", "body"]


class BoilerplateRule(NamedTuple):
    """A text to remove: the rule's name, the field it stands in, and its pattern."""

    name: str
    where: Where
    pattern: re.Pattern[str]


_TOMEVAULT_TRAILER = re.compile(
    r"(?:^-{3,}[ \t]*\n\s*)?^> Source: [^\n]*distributed by \[?TomeVault\b[^\n]*+"
    r"(?:\s*<!-- tomevault:[^\n]*-->)?\s*\Z",
    re.MULTILINE,
)
_TOMEVAULT_COMMENT = re.compile(r"^<!-- tomevault:[^\n]*-->\s*\Z", re.MULTILINE)
_TOMEVAULT_DESCRIPTION = re.compile(r"(?:\A|(?<=\s))Use when this capability is needed\.\s*\Z")
BOILERPLATE: tuple[BoilerplateRule, ...] = (
    BoilerplateRule("tomevault-trailer", "body", _TOMEVAULT_TRAILER),
    BoilerplateRule("tomevault-comment", "body", _TOMEVAULT_COMMENT),
    BoilerplateRule("tomevault-description", "description", _TOMEVAULT_DESCRIPTION),
)


def strip_boilerplate(text: str, where: Where) -> tuple[str, tuple[Finding, ...]]:
    """Return the text without that field's known boilerplate, and a finding for each rule that hit."""
    found: list[Finding] = []
    for rule in (rule for rule in BOILERPLATE if rule.where == where):
        if hit := rule.pattern.search(text, max(0, len(text) - _WITHIN_CHARS)):
            found.append(finding("boilerplate.removed", rule.name))
            text = text[: hit.start()].rstrip()
    return text, tuple(found)


def body_hash(body: str) -> str:
    """Return the SHA-256 of a canonical body as hexadecimal; exact duplicates share it."""
    return hashlib.sha256(body.encode()).hexdigest()
