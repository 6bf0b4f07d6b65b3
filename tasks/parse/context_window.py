"""What a transformer reads of a fragment: headings above, the end of what precedes, it, what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Encoding, Tokenizer

from tasks.parse.classify import FragmentInContext

_HEADINGS, _BEFORE, _TEXT, _AFTER = 24, 32, 100, 24  # tokens
_LONGEST = 16  # characters a token that are looked at, so that no text keeps the tokenizer busy


class Window(NamedTuple):
    """Token ids with their special tokens; the fragment's own are `ids[start:end]`."""

    ids: list[int]
    start: int
    end: int


def windows(fragments: Sequence[FragmentInContext], tokenizer: Tokenizer) -> list[Window]:
    """Return one window a fragment, in order, of at most 185 tokens.

    Args:
        fragments: Texts, headings and neighbours of any length.
        tokenizer: Of a BERT; it must neither truncate nor pad.
    """
    texts = [text for fragment in fragments for text in texts_read(fragment)]
    encoded: list[Encoding] = tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = [one.ids for one in encoded]
    first, between = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    found = []
    for at in range(0, len(ids), 4):
        headings, before = ids[at][-_HEADINGS:], ids[at + 1][-_BEFORE:]
        text, after = ids[at + 2][:_TEXT], ids[at + 3][:_AFTER]
        lead = [first, *headings, between, *before, between]
        found.append(Window([*lead, *text, between, *after, between], len(lead), len(lead) + len(text)))
    return found


def texts_read(fragment: FragmentInContext) -> tuple[str, str, str, str]:
    """Return headings, what precedes, the fragment with its block, what follows: cut to what may count."""
    return (
        " > ".join(fragment.heading_path)[-_LONGEST * _HEADINGS :],
        (fragment.previous or "")[-_LONGEST * _BEFORE :],
        f"{fragment.block}: {fragment.text[: _LONGEST * _TEXT]}",
        (fragment.next or "")[: _LONGEST * _AFTER],
    )
