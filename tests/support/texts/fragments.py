"""Fragments, nodes and bodies of Markdown for tests of segmenting and typing."""

from __future__ import annotations

from hypothesis import strategies as st

from storage.schemas import Node
from tasks.parse.classify.protocol import FragmentInContext
from tasks.parse.segment.segment import Segmentation


def node(
    ordinal: int,
    text: str,
    *path: str,
    kind: str = "concept",
    block: str = "prose",
    lead_in: str | None = None,
) -> Node:
    return Node(
        node_id=f"d#{ordinal}", doc_id="d", ordinal=ordinal, node_type=kind, heading_path=path, lead_in=None,
        block=block, start=0, end=len(text), text=text, n_tokens=1, classifier="c", confidence=0.5,
    )  # fmt: skip


def document(*rows: tuple[str, str, str] | tuple[str, str, str, str]) -> list[Node]:
    """Nodes from `(type, section, text[, block])`; `A/B` is section B of A, all below the title Sourdough."""
    return [
        node(
            k, row[2], "Sourdough", *row[1].split("/"), kind=row[0], block=row[3] if len(row) > 3 else "prose"
        )
        for k, row in enumerate(rows)
    ]


def fragment(
    text: str, *, heading: str = "", block: str = "prose", previous: str | None = None
) -> FragmentInContext:
    path = ("Beekeeping", heading) if heading else ()
    return FragmentInContext("f", path, block, previous, text, None)


CLEAR = [
    ("step", fragment("Open the hive and lift the lid.", heading="Step 2: Inspect")),
    ("step", fragment("[ ] Every frame is back", heading="Checklist", block="list_item")),
    ("example", fragment("```python\nhive = Hive()\nhive.weigh()\n```", block="code", heading="Usage")),
    (
        "param",
        fragment("| Flag | Default |\n|---|---|\n| `--frames` | 10 |", block="table",
                 heading="Options"),
    ),
    ("param", fragment("`--frames` (int): how many", block="list_item", heading="Parameters")),
    ("precondition", fragment("A veil and gloves", block="list_item", heading="Prerequisites")),
    ("precondition", fragment("The user asks for advice", block="list_item", heading="When to use")),
    ("precondition", fragment("Never open the hive in rain.", heading="Constraints")),
    (
        "error_handling",
        fragment("**Cause**: the count fails", block="list_item", heading="Troubleshooting"),
    ),
    ("concept", fragment("A colony is a family of bees that lives around one queen.", heading="Overview")),
    ("concept", fragment("[Queen rearing](queens.md)", block="list_item", heading="References")),
]  # fmt: skip


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


_BLOCKS = [
    "", "", " ", "\t",
    "# Title", "## Part ##", "#", "####### seven", "===", "---", "***", "- - -", "_ _ _",
    "-", "- item", "  - nested", "    - deep", "- - both", "1. first", "   2) second", "10. tenth", "* star",
    "+ plus", "- [ ] task", "- # no heading", "> quote", ">", "> > inner", ">- listed", "> ```", "lazy text",
    "```", "```py", "~~~", "   ```", "    code", "\tcode", "| a | b |", "|---|---|", "a | b", ":-: | -",
    "<div>", "</div>", "<!-- note", "-->", "<b>x", "[ref]: /target",
]  # fmt: skip
_TEXTS = [
    "Sentence one. Sentence two.", "Then:", "**Label:** text", "hard  ", "back\\", "`code. Span`", "or this.",
    "Only when", "句子。下一句。", "a\x0bb", "\x0b", "\x0c", "\u2028", "\x1c", "\0", "a\u2028# b", "\u00a0",
    "\x85", "\ufeff", "• point", "text \x0b", "  ===",
]  # fmt: skip
_LINES = st.sampled_from(_BLOCKS + _TEXTS)
_INDENTS = st.sampled_from(["", "", "", " ", "   ", "    ", "\t", "> ", "- "])
_ENDINGS = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r"])

markdown = st.lists(st.tuples(_INDENTS, _LINES, _ENDINGS).map("".join), max_size=14).map("".join)
trailing = st.sampled_from(["", "", "\n", " ", "# end", "==="])
bodies = st.one_of(st.tuples(markdown, trailing).map("".join), st.text(max_size=80))
