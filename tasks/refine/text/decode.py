"""Decodes bytes to text: UTF-8 first, then the byte-order mark, then the likeliest single-byte encoding."""

from __future__ import annotations

import codecs

from storage.schemas import Finding
from tasks.refine.text.findings import finding

# UTF-32 before UTF-16: the little-endian mark of the one begins with that of the other.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _attempt(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None


def decode(content: bytes) -> tuple[str, tuple[Finding, ...]]:
    """Return the text of a file's bytes, whatever they are; it never fails.

    Tried in order: UTF-8 (a byte-order mark stays, for `canonical` to report), UTF-16 and UTF-32 by their
    mark, Windows-1252, and Latin-1, which accepts any byte. All but the first is a finding.
    """
    text = _attempt(content, "utf-8")
    if text is not None:
        return text, ()
    marked = [encoding for mark, encoding in _MARKS if content.startswith(mark)]
    for encoding in (*marked, "cp1252"):
        text = _attempt(content, encoding)
        if text is not None:
            return text, (finding("document.not-utf8", f"not UTF-8; read as {encoding}"),)
    return content.decode("latin-1"), (finding("document.not-utf8", "not UTF-8; read as latin-1"),)
