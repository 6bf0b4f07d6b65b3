"""Decodes bytes to text: as UTF-8, else by the byte-order mark, else as the likeliest encoding."""

from __future__ import annotations

import codecs
import contextlib

from storage.schemas import Finding
from tasks.refine.text.findings import finding

# UTF-32 before UTF-16: the little-endian mark of the one begins with that of the other.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(content: bytes) -> tuple[str, tuple[Finding, ...]]:
    """Return the text of any bytes, and a finding if they are not UTF-8.

    Tried in order: UTF-8 (a byte-order mark stays, for `canonical` to report), UTF-16 and UTF-32 by their
    mark, Windows-1252, and Latin-1, which accepts any byte.
    """
    marked = [encoding for mark, encoding in _MARKS if content.startswith(mark)]
    for encoding in ("utf-8", *marked, "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(encoding)
            other = finding("document.not-utf8", f"not UTF-8; read as {encoding}")
            return text, () if encoding == "utf-8" else (other,)
    return content.decode("latin-1"), (finding("document.not-utf8", "not UTF-8; read as latin-1"),)
