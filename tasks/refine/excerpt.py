"""A few characters of a stranger's text, made harmless for messages, logs and reports."""

from __future__ import annotations

import re
import unicodedata

from tasks.refine.redact import redact

EXCERPT_CHARS = 80
_MARKUP = str.maketrans(
    {"<": "‹", ">": "›", "`": "'", "[": "(", "]": ")", "|": "¦", "\\": "/", "*": "∗", "#": "♯"}
)
# Encoded data and whatever key the rules of redaction do not know.
_LONG_TOKEN = re.compile(r"(?=[\w+/=-]{0,200}\d)[\w+=-]{20,}|[\w+/=-]{48,}")
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Mn"}


def _seen(character: str) -> str:
    if character in {"\n", "\t"}:
        return " "
    if ord(character) < 0x7F and character >= " ":
        return character
    return f"U+{ord(character):04X} " if unicodedata.category(character) in _UNSEEN else character


def excerpt(text: str, *, limit: int = EXCERPT_CHARS) -> str:
    """Return the beginning of a text, safe to show: one visible line without markup, keys or links.

    Key-like strings are redacted, long encoded runs cut to four characters, `http` is written `hxxp`,
    marks of Markdown, HTML and chat turns become look-alikes, and invisible characters are named (`U+200B`).

    Args:
        text: Any text; only its first 2,000 characters are looked at.
        limit: Characters of the result at most; a longer text ends in `…`.
    """
    clear = _LONG_TOKEN.sub(lambda m: m[0][:4] + "…", redact(text[:2000])[0])
    shown = "".join(map(_seen, clear[: 2 * limit]))
    shown = " ".join(shown.replace("http", "hxxp").translate(_MARKUP).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
