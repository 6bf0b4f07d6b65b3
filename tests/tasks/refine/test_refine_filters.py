from __future__ import annotations

import random

import pytest

from tasks.refine.decode import decode
from tasks.refine.filters import Verdict, empty, no_body, not_text, too_large

BINARY = random.Random(7).randbytes(5_000)  # noqa: S311


def reason(verdict: Verdict) -> str | None:
    return verdict[0] if verdict else None


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (too_large(None, 20_971_520), "too_large"),
        (too_large(b"", 0), None),
        (empty(b""), "empty"),
        (empty(b"\n"), None),
        (not_text(decode(BINARY)[0]), "not_text"),
        (not_text(decode(b"\x7fELF" + bytes(400))[0]), "not_text"),
        (not_text("A pot,\x00 fired\x00 twice, stays whole."), None),
        (not_text("\r\n\t" * 50), None),
        (not_text(""), None),
        (no_body(""), "no_body"),
        (no_body(" \n\t\u3000\n"), "no_body"),
        (no_body("# Kiln\n\n## Firing ##\n\nCooling\n=======\n"), "no_body"),
        (no_body("#hashtag"), None),
        (no_body("# Kiln\n\nFire it."), None),
        (no_body("# Kiln\n- cone\n---"), None),
        (no_body("```\n# a remark\n```"), None),
    ],
)
def test_a_filter_keeps_or_gives_its_reason(verdict: Verdict, expected: str | None) -> None:
    assert reason(verdict) == expected


def test_a_verdict_says_what_was_seen() -> None:
    assert too_large(None, 20_971_520) == (
        "too_large",
        "20,971,520 bytes: over the size limit, its content was not read",
    )
    assert no_body("# Kiln") == ("no_body", "only headings below the front matter")


def test_the_share_of_control_characters_is_a_parameter() -> None:
    text = "ab\x00\x01"
    assert reason(not_text(text, max_control_share=0.5)) is None
    assert reason(not_text(text, max_control_share=0.49)) == "not_text"
