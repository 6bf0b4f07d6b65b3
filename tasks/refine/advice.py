"""Findings on what is there and could be better: a description's wording, a body's length and fences."""

from __future__ import annotations

import re

from storage.schemas import Finding
from tasks.refine.fences import has_open_fence
from tasks.refine.findings import finding
from tasks.refine.licence_names import folded

# The specification's advice: under 500 lines and 5,000 tokens.
MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5_000
# English prose and code have three to five characters a token.
_CHARS_PER_TOKEN = 4

_FILLER = re.compile(
    r"(?:this|the|a|an)\s+(?:\w+\s+){0,2}?(?:skill|tool|document|file|guide)\b(?:\s+(?:that|which|to|for|is|provides|helps))?"
    r"|(?:skill|guide|instructions)\s+(?:for|to|that|on)\b|welcome\b",
    re.IGNORECASE,
)
_WIDE = re.compile("[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?>")


def on_description(description: str, name: str) -> tuple[Finding, ...]:
    """Return findings on a stated description that helps nobody choose the skill."""
    found = []
    if filler := _FILLER.match(description):
        found.append(finding("description.filler", f"it begins with {filler[0]!r}"))
    if folded(description) == folded(name):
        found.append(finding("description.name-only"))
    if tag := _TAG.search(description):
        found.append(finding("description.markup", tag[0][:80]))
    return tuple(found)


def about_tokens(text: str) -> int:
    """Return about how many tokens a text has, without a tokenizer: a quarter of its characters.

    A character of a script without spaces counts for three quarters of a token.
    """
    if text.isascii():
        return len(text) // _CHARS_PER_TOKEN
    wide = sum(len(run) for run in _WIDE.findall(text))
    return (len(text) - wide) // _CHARS_PER_TOKEN + wide * 3 // 4


def on_body(body: str) -> tuple[Finding, ...]:
    """Return findings on a body's length and on fences that are never closed."""
    found = []
    lines = body.count("\n") + 1
    if lines > MAX_BODY_LINES:
        found.append(finding("body.long", f"{lines:,} lines, advice is at most {MAX_BODY_LINES}"))
    # No character counts for a whole token, so that most bodies need no counting.
    if len(body) > MAX_BODY_TOKENS and (tokens := about_tokens(body)) > MAX_BODY_TOKENS:
        found.append(
            finding("body.many-tokens", f"about {tokens:,} tokens, advice is at most {MAX_BODY_TOKENS:,}")
        )
    if has_open_fence(body):
        found.append(finding("body.unbalanced-fence"))
    return tuple(found)
