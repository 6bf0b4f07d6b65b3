from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.text.canonical import decode


@given(st.text())
def test_utf8_is_read_as_it_is(text: str) -> None:
    assert decode(text.encode()) == (text, ())


@given(st.binary())
def test_no_bytes_whatever_make_it_raise(content: bytes) -> None:
    text, found = decode(content)
    assert text.encode().decode() == text
    assert {f.code for f in found} <= {"document.not-utf8"}


@pytest.mark.parametrize(
    ("content", "text", "encoding"),
    [
        ("Töpfe".encode("utf-16"), "Töpfe", "utf-16"),
        (codecs.BOM_UTF16_BE + "Töpfe".encode("utf-16-be"), "Töpfe", "utf-16"),
        (codecs.BOM_UTF32_LE + "Töpfe".encode("utf-32-le"), "Töpfe", "utf-32"),
        ("“Töpfe” – 5 €".encode("cp1252"), "“Töpfe” – 5 €", "cp1252"),
        (b"T\xf6pfe \x81", "Töpfe \x81", "latin-1"),
    ],
    ids=["utf-16", "utf-16 big-endian", "utf-32", "windows-1252", "latin-1"],
)
def test_what_is_not_utf8_is_read_and_found(content: bytes, text: str, encoding: str) -> None:
    decoded, found = decode(content)
    assert decoded == text
    assert [f.code for f in found] == ["document.not-utf8"]
    assert encoding in found[0].message


def test_a_utf8_mark_is_left_for_canonical_to_report() -> None:
    assert decode(codecs.BOM_UTF8 + b"a") == ("\ufeffa", ())
