"""Where a sentence ends: rules over punctuation and line structure, each linear in the paragraph's length."""

from __future__ import annotations

import re
from bisect import bisect_left
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
_CONNECTIVE = re.compile(r"[*_(\[>\s]*(?:(?:or|and)\b|(?:e\.g|i\.e)\.)", re.IGNORECASE)
# A label or a number that runs into its sentence: "**Always.** Text", "Step 2. Text", "1. Text".
_RUN_IN = re.compile(
    r"[\s>]*(?:(?:\*\*|__)[^*_]{1,40}(?:\*\*|__)|[*_]*(?:[^\W\d_]+ )?\d+(?:\.\d+)*[.)][*_]*)"
)
_WORD = re.compile(r"[^\W_](?:[\w.]*\w)?$")
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
    """Tell whether a text announces what follows: it ends in a colon or in a conditional opener.

    Emphasis that closes behind the colon does not hide it.
    """
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
    """Tell whether a line break is meant: a hard break, or a line that starts like one of its own."""
    hard = text[max(0, line.start() - 2) : line.start()]
    return hard == "  " or hard.endswith("\\") or _OWN_LINE.match(text, line.end()) is not None


def _cuts(text: str) -> list[int]:
    """Return the offsets in `text` at which a sentence ends and another starts, in order."""
    stops = [m.end() for m in _END.finditer(text) if _stops(text, m)]
    lines = [m.start() for m in _LINE.finditer(text) if _breaks(text, m)]
    candidates = sorted({*stops, *lines})
    if not candidates:
        return []
    hard = frozenset(lines)
    spans = enclosed_spans(text)
    ends = [end for _, end in spans]
    cuts, last = [], 0
    for cut in candidates:
        i = bisect_left(ends, cut + 1)
        if i < len(spans) and spans[i][0] < cut:
            continue
        if _CONNECTIVE.match(text, cut) or (cut not in hard and _RUN_IN.fullmatch(text, last, cut)):
            continue
        cuts.append(cut)
        last = cut
    return cuts


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the sentences of a paragraph as ordered spans of `text`, without the white space around them.

    Connective fragments ("or", "and", "e.g.", "i.e.") stay with the sentence before (SkillPager, 3.1).
    Nothing is cut inside code spans, brackets, quotation marks and bold runs. Quote markers belong to the
    sentence that follows them. Every non-blank character lies in exactly one span.
    """
    spans = []
    for start, end in pairwise([0, *_cuts(text), len(text)]):
        piece = text[start:end]
        if body := piece.strip():
            lead = len(piece) - len(piece.lstrip())
            spans.append((start + lead, start + lead + len(body)))
    return spans
