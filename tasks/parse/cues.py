"""The rules of the local classifier: named cues in a fragment's shape, wording and place.

A cue that is found votes for or against each type, with the weights that `tasks.parse.fit` gave it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from tasks.parse.classify import FragmentInContext
from tasks.parse.lexicon import BEFORE_VERB, TOPICS, VERBS

# A type shows in how a fragment begins; reading on in long code and tables would only cost time.
_READ = 400
_LENGTHS = (3, 6, 12, 24, 48, 96, 192, 400)

_Patterns = tuple[tuple[str, re.Pattern[str]], ...]


def _compiled(patterns: dict[str, str]) -> _Patterns:
    return tuple((name, re.compile(pattern)) for name, pattern in patterns.items())


# Looked for at the beginning only.
_OPENINGS = _compiled({
    "checkbox": r"\[[ xX]?\]",
    "bold_only": r"\*\*[^*]+\*\*[:：]?\s*$",
    "bold_term": r"\*\*[^*\n]{1,60}?(?::\*\*|\*\*\s*[:：–—(-])",
    "bold": r"\*\*",
    "label": r"(?i)\*\*(?:note|source|version|role|goal|objective|purpose|author|status|impact|file"
    r"|location|input"
    r"|output|result|key)\b",
    "warning": r"(?i)(?:>\s*)?(?:⚠️?\s*)?\**(?:important|critical|warning|caution|must|required?|rule"
    r"|stop)\b",
    "code_term": r"`[^`\n]+`\s*(?:\([^)]*\))?\s*[:：–—=→(-]",
    "code_only": r"`[^`\n]+`[.,;]?\s*$",
    "code": r"`",
    "flag": r"(?:\*\*)?`?-{1,2}[a-zA-Z]",
    "constant": r"`?[A-Z][A-Z0-9]+_[A-Z0-9_]+`?",
    "path": r"`[^`\s]*(?:/|\.(?:md|py|ts|js|sh|json|ya?ml))[^`]*`",
    "link": r"\**\[[^\]]+\]\(",
    "quoted": r"[\"“'「]",
    "tick": r"[✅✓✔☑]",
    "cross": r"[❌✗✘🚫⛔]",
    "alert": r"(?:>\s*)?[⚠🚨❗]",
    "icon": r"[\U0001F300-\U0001FAFF☀-➿]",
    "blockquote": r">",
    "arrow": r"→|->|=>|➜",
    "gerund": r"(?i)\**[a-z-]{2,}ing\b",
    "user_wants": r"(?i)(?:the )?(?:user|you|working|creating|building|needs?|wants?|asked|reviewing"
    r"|setting|writing"
    r"|implementing|adding|designing|debugging)\b",
    "third_person": r"(?i)\**(?!this|does|is|has|its|as|us|was|plus|class|access|process"
    r"|pass)[a-z]+s\b [a-z]",
    "if": r"(?i)\**(?:if|when|whenever|unless|where|in case)\b",
    "before": r"(?i)\**(?:before|prior to)\b",
    "after": r"(?i)\**(?:after|once)\b",
    "for": r"(?i)\**(?:for|to)\b",
    "article": r"(?i)(?:the|this|these|it|they|an?|each|all|both|most|there|we|our|skills?|your)\b",
    "you_are": r"(?i)(?:you are|act as|you're|your role|you have)\b",
    "see": r"(?i)\**(?:see|refer to|read more|consult|for (?:more|details|full|complete))\b",
    "example": r"(?i)\**(?:examples?|input|output|user|good|bad|before|after|request|response|sample"
    r"|usage|wrong|right"
    r"|correct|incorrect|scenario|prompt|query)\b[^:\n]{0,20}:",
    "lowercase": r"[a-z]",
    "title": r"[A-Z][\w-]+(?: [A-Z&][\w-]*)+\s*$",
    "foreign": r"[^A-Za-z]*[^\x00-\u024f\u2000-\u2bff]",
    "foreign_term": r"\**[^\x00-\u024f:：]{1,20}\**[:：]",
})  # fmt: skip

# Looked for anywhere.
_INSIDE = _compiled({
    "colon_end": r"[:：]\**\s*$",
    "stop_end": r"[.。!]\**\s*$",
    "question_end": r"\?\s*$",
    "code": r".`[^`\n]+`",
    "command": r"`(?:npm|npx|pip|git|docker|python3?|bash|curl|make|cargo|go|uv|pnpm|yarn|kubectl|gh"
    r"|brew|/)[^`]*`",
    "link": r"\]\(|https?://",
    "quote": r".[\"“「][^\"”」\n]{2,}[\"”」]",
    "arrow": r"→|->|=>|➜|⇒",
    "placeholder": r"<[a-z][\w -]*>|\{[A-Za-z_ ]+\}|\[[A-Z][\w ]+\]",
    "shout": r"\b(?:MUST|NEVER|ALWAYS|ONLY|REQUIRED|CRITICAL|DO NOT|STOP|NOT)\b",
    "typed": r"\((?:string|str|int|bool|number|float|array|object|list|optional|required|default)",
    "parenthesis": r"\([^)]+\)",
    "enumeration": r",[^,.]+,[^,.]+",
    "lines": r"\n",
})  # fmt: skip

_CODE = _compiled({
    "shell": r"(?i)\A[`~]{3,}\s*(?:bash|sh|shell|zsh|console|powershell|cmd)\b",
    "unnamed": r"\A[`~]{3,}\s*\n|\A(?!```|~~~)",
    "markup": r"(?i)\A[`~]{3,}\s*(?:markdown|md|text|txt|plaintext|html|xml)\b",
    "data": r"(?i)\A[`~]{3,}\s*(?:json|ya?ml|toml|ini|env|csv)\b",
    "diagram": r"\A[`~]{3,}\s*(?:mermaid|dot|plantuml)\b|[├└│┌▼↓]",
    "program": r"(?i)\A[`~]{3,}\s*(?:python|py|[jt]sx?|typescript|javascript|java|go|rust|ruby|php|c\w*"
    r"|swift|kotlin"
    r"|sql)\b",
    "one_line": r"\A[^\n]*\n[^\n]*\n[^\n]*\Z",
    "few_lines": r"\A[^\n]*(?:\n[^\n]*){2,4}\Z",
    "long": r"\A[^\n]*(?:\n[^\n]*){14}",
    "comment": r"(?m)^\s*(?:#|//)",
    "verdict": r"(?i)❌|✅|\b(?:wrong|bad|good|correct)\b",
    "tasks": r"(?m)^\s*(?:(?:[Tt]ask|[Ss]kill|Agent|Read|Grep|Glob)\s*\(|\d+\.|- \[ \])",
    "if_then": r"(?mi)^\s*(?:if|when|else|step \d)\b",
    "install": r"(?i)\b(?:npm i|pip3? install|brew install|apt(?:-get)? install|uv add|go install|cargo add)",
    "placeholder": r"<[a-z][\w -]*>|\{[A-Za-z_ ]+\}|\[[A-Z][\w ]+\]|\$[A-Z{]",
})  # fmt: skip

_TABLE = _compiled({
    "param": r"(?i)\A[^\n]*\b(?:flags?|options?|param|arg|fields?|variables?|propert|settings?"
    r"|defaults?|type|required"
    r"|values?|keys?|env|config|token)",
    "error": r"(?i)\A[^\n]*\b(?:errors?|issues?|problems?|symptoms?|causes?|fix|solutions?|mistakes?"
    r"|pitfalls?|anti"
    r"|resolution|recovery|failure|wrong|excuse|rationali|reality)",
    "step": r"(?i)\A[^\n]*\b(?:steps?|action|do|check|task|phase|then|how)\b",
    "example": r"(?i)\A[^\n]*\b(?:examples?|input|output|before|after|bad|good)\b",
    "condition": r"(?i)\A[^\n]*\b(?:when|condition|requirement|prerequisite|trigger|must|scenario|situation)",
    "pointer": r"(?i)\A[^\n]*\b(?:file|reference|resource|skill|document|purpose|description|topic"
    r"|command|load)",
    "flags": r"`-{1,2}[a-z]",
    "constants": r"`[A-Z][A-Z0-9]+_[A-Z0-9_]+`",
})  # fmt: skip

_HEADING = _compiled({
    "numbered": r"\W*(?:step|phase|stage|task|part|étape|schritt|paso|第)?\s*\d+(?:\.\d+)*[.):：\s-]",
    "step": r"(?i)\W*(?:step|phase|stage|etape|étape|schritt|paso|ステップ|단계)\s*\d",
    "gerund": r"(?i)\W*(?:\d[\d.]*[.)]?\s*)?[a-z-]{2,}ing\b",
    "code": r".*(?:`|--)",
    "icon": r".*[\U0001F300-\U0001FAFF☀-➿]",
})  # fmt: skip

_MARKER = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_WORD = re.compile(r"[a-z]+(?:[.'’-][a-z]+)*")

# Which cues of a neighbour tell something about the fragment beside it.
_ECHOED_OPENINGS = (
    "checkbox",
    "bold_only",
    "bold_term",
    "bold",
    "code_term",
    "code",
    "tick",
    "cross",
    "link",
    "if",
    "gerund",
    "user_wants",
    "third_person",
    "lowercase",
    "article",
    "title",
)
_ECHOED = frozenset(
    {"has:colon_end", "has:stop_end", "verb", "verb_later", *(f"opens:{name}" for name in _ECHOED_OPENINGS)}
)


class _Reading(NamedTuple):
    """What a text shows by itself: the cues of its shape, and the topics of its wording."""

    shape: tuple[str, ...]
    topics: tuple[str, ...]


def _vocabulary() -> tuple[dict[str, list[tuple[str, str]]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Split the lexicon into `first word -> (phrase, topic)`, stems and terms without word boundaries."""
    phrases: dict[str, list[tuple[str, str]]] = {}
    stems: list[tuple[str, str]] = []
    foreign: list[tuple[str, str]] = []
    for topic, terms in TOPICS.items():
        for term in terms.split():
            phrase = term.rstrip("*").replace("_", " ")
            if not term.isascii():
                foreign.append((term, topic))
            elif " " not in phrase and term.endswith("*"):
                stems.append((phrase, topic))
            else:
                phrases.setdefault(phrase.split()[0], []).append((phrase, topic))
    return phrases, stems, foreign


_PHRASES, _STEMS, _FOREIGN = _vocabulary()


@lru_cache(maxsize=65536)
def _topics_of_word(word: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the topics of a word, and the `(phrase, topic)` that begin with it."""
    begun = _PHRASES.get(word, [])
    topics = [topic for phrase, topic in begun if phrase == word]
    topics += [topic for stem, topic in _STEMS if word.startswith(stem)]
    return tuple(topics), tuple((phrase, topic) for phrase, topic in begun if phrase != word)


def _wording(text: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the text's words in lower case, and its topics in the order of the lexicon."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    found: set[str] = set()
    for word in set(words):
        topics, phrases = _topics_of_word(word)
        found.update(topics)
        found.update(topic for phrase, topic in phrases if phrase in lowered)
    if not lowered.isascii():
        found.update(topic for term, topic in _FOREIGN if term in lowered)
    return words, tuple(topic for topic in TOPICS if topic in found)


def _verbs(words: list[str]) -> Iterable[str]:
    """Name the imperatives among words: one that opens the text, one that follows on."""
    opening = next((word for word in words[:3] if word not in BEFORE_VERB), "")
    if opening in VERBS:
        yield "verb"
    if any(word in VERBS and before in ("and", "then", "to") for before, word in pairwise(words)):
        yield "verb_later"


@lru_cache(maxsize=8192)
def _read(text: str) -> _Reading:
    text = _MARKER.sub("", text, count=1) if _MARKER.match(text) else text
    words, topics = _wording(text)
    shape = [f"opens:{name}" for name, pattern in _OPENINGS if pattern.match(text)]
    shape += [f"has:{name}" for name, pattern in _INSIDE if pattern.search(text)]
    length = sum(len(text) > bound for bound in _LENGTHS)
    return _Reading((*shape, *_verbs(words), f"length:{length}"), topics)


@lru_cache(maxsize=8192)
def _read_heading(title: str) -> tuple[str, ...]:
    words, topics = _wording(title)
    return (*topics, *_verbs(words), *(name for name, pattern in _HEADING if pattern.match(title)))


def _block_of(text: str | None) -> str:
    """Tell a neighbour's kind from its first characters, since nothing else of it is known."""
    opening = text.lstrip()[:3] if text else ""
    if not opening:
        return "none"
    if opening in ("```", "~~~"):
        return "code"
    return "table" if opening[0] == "|" else "text"


@lru_cache(maxsize=8192)
def _read_neighbour(text: str) -> tuple[str, ...]:
    """Name what stands beside a fragment; one that ends in a colon leads into what comes after it."""
    block = _block_of(text)
    if block != "text":
        return (block,)
    reading = _read(text)
    leads = "has:colon_end" in reading.shape
    return (
        *(cue for cue in reading.shape if cue in _ECHOED),
        *(f"leads:{topic}" if leads else topic for topic in reading.topics),
    )


def _own(fragment: FragmentInContext) -> list[str]:
    """Return the cues in a fragment's own text, which depend on the kind of block."""
    if fragment.block in ("code", "table"):
        patterns = _CODE if fragment.block == "code" else _TABLE
        text = fragment.text.lstrip()[:_READ]
        return [f"{fragment.block}:{name}" for name, pattern in patterns if pattern.search(text)]
    reading = _read(fragment.text[:_READ])
    return [*reading.shape, *(f"topic:{topic}" for topic in reading.topics)]


def find_cues(fragment: FragmentInContext) -> list[str]:
    """Return the names of the cues found in a fragment, in a fixed order, each once.

    A block other than `list_item`, `code` and `table` is read as prose.
    """
    path = fragment.heading_path
    block = fragment.block if fragment.block in ("list_item", "code", "table") else "prose"
    found = ["any", f"block:{block}", f"depth:{min(len(path), 3)}", *_own(fragment)]
    places = {"heading": path[-1:], "above": path[-2:-1], "top": path[:-2]}
    for place, titles in places.items():
        found += [f"{place}:{cue}" for title in titles for cue in _read_heading(title[:_READ])]
    found += [f"previous:{cue}" for cue in _read_neighbour((fragment.previous or "")[:_READ])]
    found.append(f"next:{_block_of(fragment.next)}")
    return list(dict.fromkeys(found))
