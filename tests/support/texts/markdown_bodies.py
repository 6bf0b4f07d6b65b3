"""Bodies for property tests: Markdown put together from lines that interact, and any text at all."""

from __future__ import annotations

from hypothesis import strategies as st

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
