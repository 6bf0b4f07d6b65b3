"""Quoting of untrusted text in a prompt, as data that can neither end itself nor pass for anything else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence

# Angle brackets build the marks of chat templates, and so do upper-case words in square brackets; what is
# not seen (controls, joiners, directions, tags, private use, halves of pairs) is what text hides in.
_MARKS = re.compile(
    "[<>\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\ue000-\uf8ff\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\U000f0000-\U0010ffff]"
    r"|\[(?=/?[A-Z_]{3,}\])"
)
# Reads like a word to whoever is labelling: such a fragment is asked about alone, and no neighbour shows it.
_KIND = r"(?:concept|step|param(?:eter)?|example|precondition|error[_ -]?handling)s?"
_VERBS = (
    "label classify categorise categorize annotate sort mark treat answer reply respond output return say use"
)
_ANSWER = rf"\b(?:{_VERBS.replace(' ', '|')})\b"
_MANY = r"\b(?:all|any|each|every|everything|others?|rest|following|above|previous|next|fragments?|ids?)\b"
_ADDRESS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:instruction|prompt|rule|guideline|direction)s?\b"
    rf"|{_ANSWER}(?=[^\n]{{0,80}}{_MANY})[^\n]{{0,80}}(?:\bas|\bwith|\bto be|[\"'`*:])\W{{0,3}}{_KIND}\b"
    rf"|{_ANSWER}\W{{1,3}}{_KIND}\b(?=[^\n]{{0,80}}{_MANY})"
    rf"|[\"']\w{{1,6}}[\"']\s*:\s*[\"']{_KIND}[\"']"
    r"|\b(?:language model|annotator|labell?er|system prompt)s?\b|\b(?:begin|end) data\b",
    re.IGNORECASE,
)


def quoted(record: Mapping[str, object]) -> str:
    """Return a record as one line of JSON without `<`, `>`, line ends, marks of templates or unseen signs.

    They stand as escapes, so that `json.loads` gives the record back.
    """
    return _MARKS.sub(_escaped, json.dumps(dict(record), ensure_ascii=False))


def data_block(lines: Sequence[str]) -> str:
    """Return quoted lines between two marks that hold a digest of them, which no text can know beforehand."""
    mark = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return "\n".join([f"BEGIN DATA {mark}", *lines, f"END DATA {mark}"])


def addresses_the_reader(text: str) -> bool:
    """Tell whether a text reads as if it told a labeller what to answer; wrong either way now and then."""
    return _ADDRESS.search(text) is not None


def shown(text: str, most: int, keep: str) -> str:
    """Return a text as `shortened` does, or a mark in place of one that addresses the reader."""
    return "(not shown)" if addresses_the_reader(text) else shortened(text, most, keep)


def shortened(text: str, most: int, keep: str = "both") -> str:
    """Return a text of at most about `most` characters: its two ends, or its `start` or `end`, marked."""
    if len(text) <= most:
        return text
    gap = f" [... {len(text) - most} characters left out ...] "
    head = {"both": most * 2 // 3, "start": most, "end": 0}[keep]
    tail = most - head
    return text[:head] + gap + (text[-tail:] if tail else "")


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[k]:02x}{units[k + 1]:02x}" for k in range(0, len(units), 2))
