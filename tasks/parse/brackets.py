"""Stretches of a paragraph that belong together: code spans, brackets, quotation marks, bold runs."""

from __future__ import annotations

import re

# Longer than this, a pair of brackets or quotation marks may hold several sentences.
_LONGEST = 200

_TICKS = re.compile(r"\\`|`+")
_MARK = re.compile(r"[()\[\]（）「」“”\"]|\*\*")
_CLOSING = {")": "(", "]": "[", "）": "（", "」": "「", "”": "“"}


def code_spans(text: str) -> list[tuple[int, int]]:
    """Return the code spans of a paragraph: each run of backticks up to the next run of its length."""
    runs = [(m.start(), m.end()) for m in _TICKS.finditer(text) if text[m.start()] == "`"]
    after: dict[int, int] = {}
    partner = [0] * len(runs)
    for i in range(len(runs) - 1, -1, -1):
        length = runs[i][1] - runs[i][0]
        partner[i] = after.get(length, -1)
        after[length] = i
    spans, i = [], 0
    while i < len(runs):
        if partner[i] < 0:
            i += 1
            continue
        spans.append((runs[i][0], runs[partner[i]][1]))
        i = partner[i] + 1
    return spans


class _Pairs:
    """Pairs opening with closing marks; an unpaired mark holds nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: dict[str, list[int]] = {}
        self.spans: list[tuple[int, int]] = []

    def see(self, mark: str, at: int) -> None:
        """Take the next mark of the text."""
        end = at + len(mark)
        if mark in ('"', "**"):
            before = self.text[at - 1 : at] or " "
            after = self.text[end : end + 1] or " "
            if not before.isspace() and self.open.get(mark):
                self.close(mark, end)
            elif not after.isspace():
                self.open[mark] = [at]
        elif mark in _CLOSING:
            self.close(_CLOSING[mark], end)
        else:
            self.open.setdefault(mark, []).append(at)

    def close(self, mark: str, end: int) -> None:
        """Make a span of the latest open `mark`, when it is near enough."""
        stack = self.open.get(mark)
        if stack and end - (start := stack.pop()) <= _LONGEST:
            self.spans.append((start, end))


def enclosed_spans(text: str) -> list[tuple[int, int]]:
    """Return the ordered, disjoint stretches of a paragraph inside which no sentence ends.

    Code spans of any length; brackets, quotation marks and bold runs of up to 200 characters, without those
    inside others. Linear in the text's length.
    """
    code = code_spans(text) if "`" in text else []
    pairs, i = _Pairs(text), 0
    for found in _MARK.finditer(text):
        while i < len(code) and code[i][1] <= found.start():
            i += 1
        if i == len(code) or found.start() < code[i][0]:
            pairs.see(found.group(), found.start())
    merged: list[tuple[int, int]] = []
    for start, end in sorted([*code, *pairs.spans]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
