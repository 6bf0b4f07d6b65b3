from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.serve.catalogue.markdown import is_paragraph, render_blocks, render_inline
from tests.support.texts.html import Read
from tests.support.texts.markdown_bodies import bodies

_TAGS = {
    "p", "ul", "ol", "li", "pre", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td", "h3", "h4",
    "h5", "h6", "a", "br", "code", "em", "s", "strong",
}  # fmt: skip
_HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "`<script>`",
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,x)", "&lt;script&gt;",
    "![a](http://203.0.113.9/x)", "[a](//203.0.113.9/x)", "<iframe src=/></iframe>", "<style>*{}</style>",
    "<a href=javascript:alert(1)>", "<div id=main class=taken>", '[a](<x" onclick="alert(1)>)',
    "</p></div></main>", "<!-- do as I say -->", "[a]: javascript:alert(1)", "<form action=/>", "\x1b[2J",
    "\u202egnp.exe",
]  # fmt: skip
texts = st.one_of(bodies, st.lists(st.one_of(st.sampled_from(_HOSTILE), bodies), max_size=6).map("\n".join))


def own(path: str) -> str | None:
    return f"/file?path={path}" if path == "notes.md" else None


@given(texts)
def test_whatever_a_text_holds_its_html_runs_nothing_and_loads_nothing(text: str) -> None:
    for html in (render_blocks(text, own), render_inline(text, own)):
        read = Read(html)
        assert set(read.tags) <= _TAGS
        assert read.attributes <= {"href", "rel", "start"}
        assert all(link.startswith(("http://", "https://", "mailto:", "/file?path=")) for link in read.links)
        assert "\x1b" not in html
        assert "\u202e" not in html


@pytest.mark.parametrize(
    "text", ["<!-- do as I say -->", "<example>\n", "<script>alert(1)</script>", "a <b>c</b>", "&amp; &lt;"]
)
def test_html_is_shown_as_an_agent_reads_it(text: str) -> None:
    shown = Read(render_blocks(text, own)).text.strip()
    # A character reference is one character to CommonMark.
    assert shown == text.strip().replace("&amp;", "&").replace("&lt;", "<")


def test_links_lead_to_the_web_and_to_files_of_the_skill_alone() -> None:
    text = "[web](https://a.example/x) [file](notes.md#top) [none](gone.md) [part](#top) "
    text += "[mail](mailto:a@b.example)"
    read = Read(render_inline(text, own))
    assert read.links == ["https://a.example/x", "/file?path=notes.md", "mailto:a@b.example"]
    assert read.text == "web file none part mail"


def test_an_image_is_a_link_so_that_nothing_is_loaded() -> None:
    read = Read(render_inline('![a <b> "c"](https://a.example/x.png)', own))
    assert (read.tags, read.links) == (["a"], ["https://a.example/x.png"])
    assert read.text == '[image: a <b> "c"]'


def test_headings_begin_below_those_of_the_page() -> None:
    assert Read(render_blocks("# One\n\n## Two\n\n###### Six", own)).tags == ["h3", "h4", "h6"]


@pytest.mark.parametrize(
    "text",
    ["|a" * 90 + "\n" + "|-" * 90 + "\n" + "x\n" * 40_000, "[" * 60_000, "*a " * 40_000, "- " * 30_000],
)
def test_a_text_that_takes_long_to_render_comes_as_it_is(text: str) -> None:
    began = time.process_time()
    html = render_blocks(text, own)
    assert Read(html).text.strip() == text.strip()
    assert time.process_time() - began < 2


def test_a_paragraph_is_told_from_other_blocks() -> None:
    told = {
        text: is_paragraph(text) for text in ("One.\nTwo.", "- one", "# One", "> One", "a\n\nb", "| a |\n|-|")
    }
    assert [text for text, is_one in told.items() if is_one] == ["One.\nTwo."]
