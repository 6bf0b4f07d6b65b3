"""Scripts that are written without spaces: their text is cut by characters, not words."""

from __future__ import annotations

# First and last characters of kana, Han, Thai and Lao, Myanmar and Khmer. Hangul is written with spaces.
UNSPACED = (
    (0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF), (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xFF66, 0xFF9D),
)  # fmt: skip
# The same as a character class of a regular expression.
UNSPACED_CLASS = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]"
