"""Splits a paragraph into sentences by punctuation and line structure, in time linear in its length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

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
        if partner[i] >= 0:
            spans.append((runs[i][0], runs[partner[i]][1]))
        # An unpaired run is text, and pairs after it still count.
        i = max(i, partner[i]) + 1
    return spans


class _Pairs:
    """Pairs opening with closing marks; an unpaired mark encloses nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: dict[str, list[int]] = {}
        self.spans: list[tuple[int, int]] = []

    def see(self, mark: str, at: int) -> None:
        """Add the next mark of the text."""
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
        """Make a span of the latest open `mark` if it is at most 200 characters away."""
        stack = self.open.get(mark)
        if stack and end - (start := stack.pop()) <= _LONGEST:
            self.spans.append((start, end))


def enclosed_spans(text: str) -> list[tuple[int, int]]:
    """Return the ordered, disjoint spans of a paragraph inside which no sentence ends.

    These are code spans of any length, and the outermost brackets, quotation marks and bold runs of at most
    200 characters.
    """
    code, pairs = code_spans(text), _Pairs(text)
    marks = {found.start(): found.group() for found in _MARK.finditer(text)}
    for at in _outside(marks, code):
        pairs.see(marks[at], at)
    merged: list[tuple[int, int]] = []
    for start, end in sorted([*code, *pairs.spans]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _outside(offsets: Iterable[int], spans: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the offsets, in ascending order, that lie inside none of the ordered spans."""
    i = 0
    for offset in offsets:
        while i < len(spans) and spans[i][1] <= offset:
            i += 1
        if i == len(spans) or offset <= spans[i][0]:
            yield offset


_END = re.compile(r"(?:[。！？｡]+|[.!?…؟۔।]+)[\"'”’»)\]）」』】》〉*_~`]*")
_GAP = re.compile(r"[^\S\r\n]*(?:[\r\n][\s>]*)?")
_LINE = re.compile(r"(?:\r\n?|\n)[ \t>]*")
_FULLWIDTH = frozenset("。！？｡")
_NEVER_STARTS = frozenset(",;:)]}%.!?…，、；：）】」』。！？")
# A line that starts like this is meant as a line of its own: a bold label, a symbol, a number, a link target.
_OWN_LINE = re.compile(
    r"(?:\*\*|__)[^\s*_][^*\r\n]{0,100}?(?:[:：][ \t]*(?:\*\*|__)|(?:\*\*|__)[ \t]*(?:[:：(–—-]|$|[\r\n]))"
    r"|[•·‣◦→⇒\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    r"|\(?\d{1,3}[.)][ \t]"
    r"|\[[^\]\r\n]{1,60}\]:[ \t]"
)
_CONNECTIVE = re.compile(r"[*_(\[>\s]{0,60}(?:(?:or|and)\b|(?:e\.g|i\.e)\.)", re.IGNORECASE)
# A label or a number that runs into its sentence: "**Always.** Text", "Step 2. Text", "1. Text".
_RUN_IN = re.compile(
    r"[\s>]{0,60}(?:(?:\*\*|__)[^*_]{1,40}(?:\*\*|__)"
    r"|[*_]{0,6}(?:[^\W\d_]{1,40} )?\d{1,9}(?:\.\d{1,9}){0,9}[.)][*_]{0,6})"
)
_WORD = re.compile(r"[^\W_](?:[\w.]{0,14}\w)?$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_ANOTHER_INITIAL = re.compile(r"\.\s[^\W\d_]\.")
_ABBREVIATION = re.compile(
    r"vs|cf|viz|approx|dr|mrs?|ms|prof|st|al|ca|resp|incl|excl|esp|mme|mlle|sra?|bzw|ggf|evtl|inkl|vgl|напр|др"
)
_BEFORE_NUMBER = re.compile(
    r"nos?|nr|figs?|eqs?|sec|ch|chap|vol|art|ver|max|min|pp?|v|abb|abs|núm|pág|рис|стр|п"
)
_LABEL = re.compile(r"option|plan|step|type|class|part|appendix|phase|section|case|variant|level|tier|group")
_CONDITIONS = frozenset({
    "if", "when", "whenever", "while", "otherwise", "unless", "until", "before", "after", "else", "where",
    "in case", "long as", "provided that", "wenn", "falls", "sonst", "si", "sinon", "cuando", "quando", "se",
    "если", "когда", "иначе",
})  # fmt: skip
_FINAL = (".", "!", "?", ")", "`", "。")
_TRAILERS = " \t\r\n\f\v*_\\>"


def opens(text: str) -> bool:
    """Tell whether a text announces what follows: it ends in a colon or in a conditional opener."""
    # Emphasis often closes behind the colon: `**Note:**`.
    tail = text[-40:].rstrip(_TRAILERS)
    if tail.endswith((":", "：")):
        return True
    if tail.endswith(_FINAL) and not tail.endswith(".."):
        return False
    words = tail.rstrip(" ,.…-–—").lower().split()[-2:]
    return " ".join(words) in _CONDITIONS or (bool(words) and words[-1].strip("\"'“”‘’([*_") in _CONDITIONS)


def _abbreviated(text: str, stop: int, following: str) -> bool:
    """Tell whether the full stop at `stop` belongs to its word, given the next word's first character."""
    found = _WORD.search(text[max(0, stop - 16) : stop])
    if found is None:
        return False
    word = found.group()
    lower = word.lower()
    if _ABBREVIATION.fullmatch(lower) or _INITIALS.fullmatch(word):
        return True
    if _BEFORE_NUMBER.fullmatch(lower):
        return following.isdigit() or following in "#§"
    return len(word) == 1 and word.isupper() and following.isupper() and _initial(text, stop - 1)


def _initial(text: str, at: int) -> bool:
    """Tell a name's initial from a letter that numbers something ("Option B." ends a sentence)."""
    if _ANOTHER_INITIAL.match(text, at + 1):
        return True
    before = text[max(0, at - 24) : at].split()
    return not before or (before[-1][:1].isupper() and not _LABEL.fullmatch(before[-1].lower()))


def _stops(text: str, end: re.Match[str]) -> bool:
    """Tell whether the punctuation `end` closes a sentence, by what stands before and after it."""
    after = _GAP.match(text, end.end())
    at = after.end() if after else end.end()
    if at >= len(text):
        return False
    mark = text[end.start()]
    following = text[at]
    if mark in _FULLWIDTH:
        return following not in _NEVER_STARTS
    if at == end.end() or following.islower() or following in _NEVER_STARTS:
        return False
    if mark == "…" or text.startswith("..", end.start()):
        return following.isupper()
    return mark != "." or not _abbreviated(text, end.start(), following)


def _breaks(text: str, line: re.Match[str]) -> bool:
    """Tell whether a line break ends a sentence: a hard break, or one before a line that stands by itself."""
    hard = text[max(0, line.start() - 2) : line.start()]
    return hard == "  " or hard.endswith("\\") or _OWN_LINE.match(text, line.end()) is not None


def _cuts(text: str) -> list[int]:
    """Return the offsets in `text` at which a sentence ends and another starts, in order."""
    lines = {m.start() for m in _LINE.finditer(text) if _breaks(text, m)}
    candidates = lines.union(m.end() for m in _END.finditer(text) if _stops(text, m))
    # Most paragraphs are one sentence, for which no enclosed span need be looked for.
    spans = enclosed_spans(text) if candidates else []
    cuts, last = [], 0
    for cut in _outside(sorted(candidates), spans):
        run_in = cut not in lines and _RUN_IN.fullmatch(text, last, cut)
        if not run_in and not _CONNECTIVE.match(text, cut):
            cuts.append(cut)
            last = cut
    return cuts


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the sentences of a paragraph as ordered spans of `text`, without the white space around them.

    Connective fragments ("or", "and", "e.g.", "i.e.") stay with the sentence before (SkillPager, 3.1). No
    sentence ends inside a code span, brackets, quotation marks or a bold run. Quote markers belong to the
    sentence after them. Every non-blank character lies in exactly one span.
    """
    spans = []
    for start, end in pairwise([0, *_cuts(text), len(text)]):
        piece = text[start:end]
        if body := piece.strip():
            lead = len(piece) - len(piece.lstrip())
            spans.append((start + lead, start + lead + len(body)))
    return spans
