r"""Visible text: third parties' names and texts, made safe to show in terminals, logs, tables and pictures.

A name from a marketplace may hold ESC (which moves a terminal's cursor or its clipboard), a line end (which
forges a line of a log), or an override of direction (which shows `gnp.exe` as `exe.png`). None of them is
removed: each stands as its escape, such as `\x1b` or `\u202e`, so that a reader sees what is there.
"""

from __future__ import annotations

import re

# All of Unicode's Cc, Cs, Zl, Zp and noncharacters, and Cf but for what writing needs: the two joiners of
# Persian, of Indic scripts and of emoji, and signs that are themselves seen (Arabic, Syriac, Kaithi) or join
# hieroglyphs.
_UNSEEN = (
    "\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
) + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
_IN_A_LINE = re.compile(f"[\0-\x1f{_UNSEEN}]")
_IN_LINES = re.compile(f"[\0-\x08\x0b-\x1f{_UNSEEN}]")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text with its control characters as escapes such as `\x1b`, safe to show to a person.

    Control characters are those that change what is around them or are not seen: C0 and C1, overrides and
    marks of direction, separators of lines, zero-width spaces, tags, lone surrogates and noncharacters. The
    result is valid UTF-8 and, once `<` and `&` are escaped, valid XML 1.0. A result is returned unchanged.
    With `lines`, for a text of many of them, line feeds and tabs stay.
    """
    unseen = _IN_LINES if lines else _IN_A_LINE
    return unseen.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
