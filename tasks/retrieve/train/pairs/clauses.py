"""Clauses of descriptions that say when a skill is to be used: "use when ...", triggers, quoted requests."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.retrieve.train.pairs.pieces import NEGATIVE, QUOTED, Origin, Piece, quotes

_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?<!etc\.)(?<=[.!?。])[\"”']?\s+(?=[A-Z\"“'(*\[])|\n+")
_OPENER = re.compile(
    r"""(?ix)(?:^|[-–—:;(]\s*|\b(?:and|also)\s+|(?<=[a-z)]),?\s+(?=use\s+when))
    (?:(?:this|the)\s+(?:skill|agent|tool|command)\s+)?(?:should\s+be\s+|must\s+be\s+|can\s+be\s+|is\s+|be\s+)?
    (?:auto-?)?(?:use[ds]?|invoked?|activate[sd]?|appl(?:y|ies)|trigger(?:s|ed)?|loads?|consult|call(?:ed)?)
    (?:\s+(?:this|it|the))?(?:\s+(?:skill|agent|tool|command|workflow|guide))?
    (?:\s+(?:automatically|proactively|immediately|only|also|always|automatic|particularly|especially))*
    \s*(?::\s*)?\b(?P<how>when(?:ever)?|if|for|to|on)\b(?:\s+(?:requests?|tasks?|prompts?)\s+(?:like|such\s+as))?
    \s*:?\s*(?P<rest>\S.*)"""
)
_TRIGGERS = re.compile(
    r"(?i)^(?:auto-?)?(?:triggers?|activates?|keywords?|trigger (?:phrases?|words?|keywords?|terms?))"
    r"(?: (?:on|for|with|when|include|are|phrases?|keywords?|words?|like|such as|requests?|user|says|the))*"
    r"\s*[:\s]\s*(.+)$"
)
_SAYS = re.compile(
    r"(?i)\b(?:trigger|when|says?|said|asks?|mentions?|phrases?|requests?|like|prompts?|querie?s)"
)
_PARTS = re.compile(
    r"(?i)\s*[,;]\s*(?:and\s+|or\s+)*(?=(?:when(?:ever)?|if)\s|(?:the\s+)?users?\s|you\s|(?:when\s+)?asked\s"
    r"|(?:wants?|needs?|asks?|seeks?|mentions?|requests?|says?)\s)"
    r"|\s+or\s+(?=when(?:ever)?\s|if\s|(?:the\s+)?users?\s|(?:wants|needs|asks|mentions|requests)\s)|\s*,?\s*(?:and\s+|or\s+)?\(?\b[1-9]\)\s*|\s*;\s*"
)
_DANGLING = re.compile(
    r"(?i)[\s,;:(—–-]*(?:\b(?:or|and|when|the|users?|says?|asks?|mentions?|for|to|like)\b[\s,]*)*$"
)
_LISTED = re.compile(r"\s*[,;|、]\s*(?:or\s+|and\s+)?")


def clause_pieces(description: str) -> Iterator[Piece]:
    """Yield the requests in a description; each cuts the whole sentence that it stands in.

    Sentences that say when a skill is not to be used are passed over.
    """
    for start, end in sentences(description):
        sentence = description[start:end]
        opener = _OPENER.search(sentence)
        triggers = _TRIGGERS.match(sentence.strip())
        if NEGATIVE.search(sentence) or not (opener or triggers):
            continue
        for origin, text in _of_sentence(sentence, opener, triggers):
            yield Piece(origin, text, "description", start, end)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the half-open spans of a text's sentences, in order."""
    start = 0
    for found in _END.finditer(text):
        if text[start : found.start()].strip():
            yield start, found.start()
        start = found.end()
    if text[start:].strip():
        yield start, len(text)


def _of_sentence(
    sentence: str, opener: re.Match[str] | None, triggers: re.Match[str] | None
) -> Iterator[tuple[Origin, str]]:
    spoken = quotes(sentence) if _SAYS.search(sentence) else []
    for one in spoken:
        yield "description_quote", one
    if triggers and not spoken:
        for one in _LISTED.split(triggers[1].rstrip(". ")):
            yield "description_trigger", one
    elif opener:
        for one in _parts(opener["rest"]):
            yield "description_clause", f"{opener['how']} {one}"


def _parts(clause: str) -> Iterator[str]:
    quoted = QUOTED.search(clause)
    told = _DANGLING.sub("", clause[: quoted.start()]) if quoted else clause
    yield from (part for part in _PARTS.split(told) if part.strip())
