"""What holds of every segmentation."""

from __future__ import annotations

from tasks.parse.segment.segment import Segmentation


def check_invariants(body: str, found: Segmentation) -> None:
    """Raise where spans are unordered, overlap, are not exact, are blank, or leave a character out."""
    pieces = sorted(
        [*((f.start, f.end) for f in found.fragments), *((h.start, h.end) for h in found.headings)]
    )
    at = 0
    for start, end in pieces:
        assert at <= start < end <= len(body)
        assert not body[at:start].strip()
        at = end
    assert not body[at:].strip()
    assert [f.ordinal for f in found.fragments] == list(range(len(found.fragments)))
    assert [f.start for f in found.fragments] == sorted(f.start for f in found.fragments)
    for fragment in found.fragments:
        assert fragment.text == body[fragment.start : fragment.end]
        assert fragment.text == fragment.text.rstrip()
        first = fragment.text.lstrip()
        assert first
        if fragment.block in ("prose", "list_item"):
            assert first == fragment.text
        else:
            assert "\n" not in fragment.text[: -len(first)]
