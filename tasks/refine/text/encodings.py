"""Encodings: the bytes of a file as text, in the encoding that its author's machine wrote."""

from __future__ import annotations

import codecs
import contextlib
import re

from storage.schemas import Finding
from tasks.refine.text.rules import finding

# UTF-32 before UTF-16: the little-endian mark of the one begins with that of the other.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FOREIGN = re.compile(r"[^\x00-\x7f]")
# Western text in Windows-1252 has single letters with accents, and signs between words.
_WESTERN = re.compile(
    r"[^\x00-\xffŒœŸ‘’‚“”„–—…•€™]|[ÐðÝýÞþ]|[^\x00-\x7f\W]{3}|[^\W_](?:[¡¿]|[¢-©«-®¯´¶-¸»][^\W_]|[°±²³¹¼-¾×÷][^\W\d_]{3})"
)
# Too little for statistics: one to three words of frequent Chinese characters in GB 2312.
_FEW_HAN = re.compile(
    rb"\A(?:[\0-\x7f]*+(?:([\xb0-\xd7][\xa1-\xfe])(?!\1)(?:[\xb0-\xd7][\xa1-\xfe]){1,5})){1,3}[\0-\x7f]*"
)
# What is Korean as well is so if half of its syllables are frequent: those of frequent Chinese characters'
# bytes are not.
_KOREAN = re.compile(
    "[가개검결계고과구국그글기나네는니다단대데동드등라력로료를리만명무문발배번보부분사상색생서석설수스습시실아안어에여오요용원웹유율"
    "은을음의이인입자작장재전정제젝조종주지출카코키터트파프하한합해행화환회]"
)
# The encodings that are told apart, each with the characters that a text in it is made of.
_HAN, _KANA, _CYRILLIC = "\u3000-\u303f\u4e00-\u9fff\uff01-\uff60", "\u3040-\u30ff", "\u0400-\u045f"
_LATIN, _ARABIC = "\xa0-\u024f\u2010-\u2026\u20ac", "\u0600-\u06ff"
_WRITTEN = {
    "gb18030": _HAN, "big5": _HAN, "cp932": _HAN + _KANA, "euc_jp": _HAN + _KANA, "euc_kr": "\uac00-\ud7a3",
    "cp1251": _CYRILLIC, "koi8_r": _CYRILLIC, "cp1253": "\u0370-\u03ff", "cp1255": "\u0590-\u05ff",
    "cp1256": _ARABIC, "iso8859_6": _ARABIC, "cp1252": _LATIN, "cp1250": _LATIN, "cp1254": _LATIN,
}  # fmt: skip
# What each text in them has: kanji alone are as likely Chinese, Cyrillic in one case alone Greek or Hebrew.
_ALEF_LAM = ("\u0627", "\u0644")
_CASES = ("\u0410-\u042f", "\u0430-\u044f")
_NEEDED = {"cp932": (_KANA,), "euc_jp": (_KANA,), "cp1251": _CASES, "koi8_r": _CASES}
_NEEDED |= {"cp1256": _ALEF_LAM, "iso8859_6": _ALEF_LAM}
_LEAST_SHARE = 0.8  # of the characters beyond ASCII: a text may hold arrows, bullets and names
_SAMPLE_BYTES = 20_000
_MOST_DAMAGED = 0.2  # of the characters beyond ASCII in UTF-8 that somebody cut or mixed
# The zeros of UTF-16 that is partly ASCII stand at even places, or at odd ones.
_LEAST_ZEROS, _MOST_STRAY_ZEROS = 0.02, 0.1
# What is UTF-8 as well is UTF-16 only if it is so all along: a script may have zeros at its end.
_WINDOW_BYTES, _LEAST_ZEROS_OF_ASCII = 256, 0.8


def decode(content: bytes) -> tuple[str, tuple[Finding, ...]]:
    """Return the text of any bytes, and a finding if they are not UTF-8.

    Tried in order: UTF-16 and UTF-32 by their mark, or by where its zeros stand, UTF-8 (a byte-order mark
    stays, for `canonical` to report), UTF-8 with a few damaged bytes, ASCII with a few words of Chinese or
    Korean, Windows-1252 if what comes out reads as Western text, and what its statistics say. Where these
    say nothing, or what no one writes, the text is that of Latin-1, which accepts any byte, and the finding
    `document.unknown-encoding` if it is no text.
    """
    marked = [encoding for mark, encoding in _MARKS if content.startswith(mark)]
    for encoding in (*marked, *_wide(content), "utf-8"):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding), () if encoding == "utf-8" else _other(encoding)
    text = content.decode("utf-8", "replace")
    if text.count("\ufffd") <= _MOST_DAMAGED * (len(text) - len(text.encode("ascii", "ignore"))):
        return text, _other("utf-8 with damaged bytes")
    if _FEW_HAN.fullmatch(content):
        encoding = "euc_kr" if _is_korean(content) else "gb18030"
        return content.decode(encoding), _other(encoding)
    with contextlib.suppress(UnicodeDecodeError):
        text = content.decode("cp1252")
        if not _WESTERN.search(text):
            return text, _other("cp1252")
    for encoding in _told(content):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding), _other(encoding)
    text = content.decode("latin-1")
    return text, (finding("document.unknown-encoding"),) if _WESTERN.search(text) else _other("latin-1")


def scanned(content: bytes) -> str:
    """Return the text to scan for risks: with zeros or a mark, also what a shell reads, which drops both."""
    text = decode(content)[0]
    if b"\0" not in content and not any(content.startswith(mark) for mark, _ in _MARKS):
        return text
    plain = content.replace(b"\0", b"").decode("ascii", "ignore")
    return text if plain == text else f"{text}\n{plain}"


def _other(encoding: str) -> tuple[Finding, ...]:
    return (finding("document.not-utf8", f"not UTF-8; read as {encoding}"),)


def _wide(content: bytes) -> list[str]:
    """Return the UTF-16 without a mark that bytes are, if they are: an end of a line has its zero."""
    if len(content) % 2 or b"\0" not in content:
        return []
    zeros = [content[parity::2].count(0) for parity in (0, 1)]
    often = max(zeros) >= _LEAST_ZEROS * len(content) / 2 and min(zeros) <= _MOST_STRAY_ZEROS * max(zeros)
    encoding = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    if _is_utf8(content):
        high = content[int(zeros[1] > zeros[0]) :: 2]
        windows = [high[at : at + _WINDOW_BYTES // 2] for at in range(0, len(high), _WINDOW_BYTES // 2)]
        often = often and all(some.count(0) >= _LEAST_ZEROS_OF_ASCII * len(some) for some in windows)
    return [encoding] if often and _reads_as_wide(content.decode(encoding, "replace")) else []


def _is_korean(content: bytes) -> bool:
    foreign = "".join(_FOREIGN.findall(content.decode("euc_kr", "replace")))
    hangul = re.fullmatch(f"[{_WRITTEN['euc_kr']}]+", foreign)
    return bool(hangul) and 2 * len(_KOREAN.findall(foreign)) >= len(foreign)


def _is_utf8(content: bytes) -> bool:
    with contextlib.suppress(UnicodeDecodeError):
        return bool(content.decode())
    return False


def _reads_as_wide(text: str) -> bool:
    return "\n" in text and not re.search("[\0-\x08\x0e-\x1f\ue000-\uf8ff\ufffd-\uffff]", text)


def _told(content: bytes) -> list[str]:
    """Return the encodings that bytes may be in by their statistics, the likeliest first."""
    if b"\0" in content:
        return []
    # Its import takes as long as a query, and hardly a file needs it.
    from charset_normalizer import from_bytes  # noqa: PLC0415

    foreign = [line for line in content[: 8 * _SAMPLE_BYTES].splitlines(keepends=True) if not line.isascii()]
    sample = b"".join(foreign)[:_SAMPLE_BYTES]
    sample = sample[: sample.rfind(b"\n") + 1] or sample
    found = from_bytes(sample, cp_isolation=list(_WRITTEN), enable_fallback=False)
    written = [match for match in found if _is_written(str(match), match.encoding)]
    # Of a short text they say the same of several: then the one that is met more often comes first.
    order = list(_WRITTEN)
    written.sort(key=lambda match: (match.chaos, -match.coherence, order.index(match.encoding)))
    return [match.encoding for match in written]


def _is_written(text: str, encoding: str) -> bool:
    """Tell whether the characters beyond ASCII are those that a text in an encoding is made of."""
    foreign = "".join(_FOREIGN.findall(text))
    own = re.findall(f"[{_WRITTEN[encoding]}]", foreign)
    needed = all(re.search(f"[{some}]", foreign) for some in _NEEDED.get(encoding, ()))
    return needed and len(own) >= _LEAST_SHARE * len(foreign)
