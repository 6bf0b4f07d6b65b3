from __future__ import annotations

import html
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.serve.catalogue.markdown import render
from flows.serve.catalogue.skill_page import Block, blocks_of
from storage.schemas import Node
from tasks.models.visible import visible
from tasks.parse.segment.segment import Fragment, segment
from tests.flows.serve.catalogue.conftest import HOSTILE_ID, Catalogue
from tests.support.clock import takes_less
from tests.support.serving import Answer, ask_http
from tests.support.texts.fragments import bodies
from tests.support.texts.html import Read


def nodes_of(body: str) -> list[Node]:
    return [_node(fragment) for fragment in segment(body).fragments]


def _node(found: Fragment) -> Node:
    return Node(
        node_id=f"d#{found.ordinal}", doc_id="d", ordinal=found.ordinal, node_type="step", n_tokens=1,
        heading_path=found.heading_path, lead_in=found.lead_in, block=found.block, start=found.start,
        end=found.end, text=found.text, classifier="none", confidence=1.0,
    )  # fmt: skip


def shown(body: str) -> list[Block]:
    return blocks_of(body, nodes_of(body), lambda _: None)


@given(bodies)
def test_every_node_and_heading_is_shown_once_in_order(body: str) -> None:
    blocks = shown(body)
    ordinals = [part.ordinal for block in blocks for part in block.parts if part.ordinal is not None]
    nodes = nodes_of(body)
    if nodes:
        assert ordinals == [node.ordinal for node in nodes]
        titles = [heading.title for heading in segment(body).headings]
        assert [block.title for block in blocks if block.kind == "heading"] == titles
    else:
        assert not ordinals


def test_sentences_of_a_paragraph_stand_in_one_and_other_blocks_apart() -> None:
    blocks = shown("# Bread\n\nMix it. Knead it.\n\nLet it rest.\n\n- flour\n  - rye\n\n```sh\nbake\n```\n")
    assert [(b.kind, b.depth, [str(p.html).strip() for p in b.parts]) for b in blocks] == [
        ("heading", 3, ["Bread"]),
        ("paragraph", 0, ["Mix it.", "Knead it."]),
        ("paragraph", 0, ["Let it rest."]),
        ("block", 0, ["<ul>\n<li>flour</li>\n</ul>"]),
        ("block", 1, ["<ul>\n<li>rye</li>\n</ul>"]),
        ("block", 0, ["<p><em>sh</em></p><pre><code>bake\n</code></pre>"]),
    ]


def test_a_heading_knows_the_nodes_of_its_section_and_those_below_it() -> None:
    blocks = shown("First.\n\n# A\n\nOne.\n\n## B\n\nTwo.\n\n# C\n\nThree.\n")
    assert {b.title: b.inside for b in blocks if b.kind == "heading"} == {"A": {1, 2}, "B": {2}, "C": {3}}


def test_a_deep_item_is_no_code_and_a_body_without_nodes_is_one_block() -> None:
    blocks = shown("1. one\n\n   - two\n\n     - three\n\n       goes on\n")
    assert [(b.depth, "<code>" in b.parts[0].html) for b in blocks] == [(0, False), (1, False), (2, False)]
    (block,) = blocks_of("Serves **maps**.", [], lambda _: None)
    assert (block.kind, block.parts[0].html.strip()) == ("block", "Serves <strong>maps</strong>.")
    assert blocks_of(" \n", [], lambda _: None) == []


def test_a_long_body_is_shown_whole_though_not_rendered_to_its_end() -> None:
    body = "".join(f"- **item** {number}\n" for number in range(4_000))
    blocks = shown(body)
    assert takes_less(5, lambda: shown(body))
    assert len(blocks) == 4_000
    assert "<strong>" in blocks[0].parts[0].html
    assert blocks[-1].parts[0].html == "<pre>- **item** 3999</pre>"


PAGES = (
    "/", "/?q=bake+bread", "/?kind=skill&risk=none", "/skill?doc_id=bread", "/sources", "/report", "/docs",
    "/skill?doc_id=bread&q=how+long%3F", "/graph?doc_id=bread", "/file?doc_id=bread&path=notes.md",
    "/revisions?doc_id=bread", f"/skill?doc_id={HOSTILE_ID}&q=tide", f"/graph?doc_id={HOSTILE_ID}",
    "/skill?doc_id=none",
)  # fmt: skip


def page(catalogue: Catalogue, target: str, status: int = 200) -> str:
    answer = ask_http(catalogue.server, target, accept="text/html")
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.body.decode()


def text_of(made: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", made)).split())


@pytest.mark.parametrize("target", PAGES)
def test_a_page_loads_only_what_is_this_servers_own(catalogue: Catalogue, target: str) -> None:
    answer: Answer = ask_http(catalogue.server, target, accept="text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'")
    assert "set-cookie" not in answer.headers
    made = answer.body.decode()
    assert set(re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"([^\"]*)\"", made)) == {
        "/static/catalogue.css", "/static/catalogue.js", "/static/icon.svg"
    }  # fmt: skip
    assert not {name for name in Read(made).attributes if name.startswith("on") or name == "style"}


def test_a_search_tells_why_each_skill_was_found(catalogue: Catalogue) -> None:
    made = page(catalogue, "/?q=bake+bread")
    assert made.index("doc_id=local%2Fmarket%2Fbread") < made.index("doc_id=local%2Fmarket%2Ftea")
    assert "<mark>" in made
    assert re.search(r"Fit \d+ %\. Score .* words in common", text_of(made))
    assert "seems to fit" not in text_of(made)


def test_a_search_that_nothing_fits_says_so_above_what_comes_nearest(catalogue: Catalogue) -> None:
    made = text_of(page(catalogue, "/?q=prepare+the+quarterly+statement+of+value+added+tax"))
    assert "Nothing served seems to fit; what comes nearest" in made
    assert "words in common" in made or "meaning of the whole task" in made


def test_without_a_task_all_skills_are_listed_by_name_and_filtered(catalogue: Catalogue) -> None:
    made = page(catalogue, "/")
    names = re.findall(r"<h3><a [^>]*>(\w+)", made)
    assert names == sorted(names)
    assert len(names) == 5
    risky = page(catalogue, "/?risk=none")
    assert 'name="risk" value="none" checked' in risky
    assert 'value="dir:' in page(catalogue, "/?source=dir").partition(" checked")[0].rpartition("<input")[2]
    assert HOSTILE_ID not in risky
    assert "nothing served has it" in page(catalogue, "/?licence=Nonesuch", 400)
    assert "on 5 pages" in page(catalogue, "/?q=bread&page=9", 400)


@pytest.mark.parametrize("percent", [100, 40, 1])
def test_what_is_marked_is_what_page_takes(catalogue: Catalogue, percent: int) -> None:
    budget = "" if percent == 100 else f"&budget={percent / 100}"
    found = ask_http(catalogue.server, f"/api/page?doc_id=bread&q=how+long%3F{budget}").json()
    made = page(catalogue, f"/skill?doc_id=bread&q=how+long%3F&percent={percent}")
    marked = re.findall(r'id="n(\d+)" class="node \w+ taken"', made)
    assert [f"local/market/bread#{n}" for n in marked] == [node["node_id"] for node in found["nodes"]]
    assert "taken in part" not in made  # each node of this skill is short
    assert f"{found['tokens']} of {found['document_tokens']} tokens" in text_of(made)
    headings = re.findall(r'<h\d class="taken">([^<]*)<', made)
    assert headings == [line.lstrip("# ") for line in found["context"].splitlines() if line.startswith("#")]


def test_a_skill_without_a_request_is_shown_whole_with_its_files_and_revisions(catalogue: Catalogue) -> None:
    made = page(catalogue, "/skill?doc_id=bread")
    assert "taken" not in made
    assert "three hours" in made
    assert 'href="/file?doc_id=local%2Fmarket%2Fbread&amp;path=notes.md"' in made
    revisions = text_of(page(catalogue, "/revisions?doc_id=bread"))
    assert "two hours" in revisions
    assert "+" in revisions
    assert "Use rye." in page(catalogue, "/file?doc_id=bread&path=notes.md")


def test_the_graph_names_each_node_and_counts_edges(catalogue: Catalogue) -> None:
    made = page(catalogue, "/graph?doc_id=bread")
    known = ask_http(catalogue.server, "/api/page?doc_id=bread&q=bake&budget=1000000").json()
    assert made.count('class="node ') - 6 == len(known["nodes"])  # six stand in the legend
    assert made.count('<path class="edge sequence') == len(known["nodes"])  # one stands in the legend


def test_the_state_of_sources_and_the_last_night_are_told(catalogue: Catalogue) -> None:
    assert "dir:" in text_of(page(catalogue, "/sources"))
    report = text_of(page(catalogue, "/report"))
    assert catalogue.root.served().version in report
    assert ask_http(catalogue.server, "/evaluation").status == 404
    catalogue.root.root.write("reports/evaluation.html", b"<p>An evaluation.")
    kept = ask_http(catalogue.server, "/evaluation")
    assert kept.body == b"<p>An evaluation."
    policy = kept.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; img-src data:")
    assert {"form-action 'none'", "base-uri 'none'", "sandbox"} <= set(policy.split("; "))
    assert 'href="/evaluation"' in page(catalogue, "/report")


def test_what_a_reader_wrote_is_shown_without_control_characters(catalogue: Catalogue) -> None:
    made = page(catalogue, "/?q=%1b%5b31m+bread+%e2%80%ae")
    assert "\x1b" not in made
    assert "\u202e" not in made
    assert "\\x1b[31m bread \\u202e" in made


def test_errors_are_pages_to_a_browser_and_json_to_programs(catalogue: Catalogue) -> None:
    made = text_of(page(catalogue, "/skill?doc_id=brea", 404))
    assert "no served document has the id 'brea'" in made
    assert ask_http(catalogue.server, "/skill?doc_id=brea").json()["status"] == 404
    assert ask_http(catalogue.server, "/api/skills/brea", accept="text/html").json()["status"] == 404
    assert "percent" in page(catalogue, "/skill?doc_id=bread&percent=101", 400)
    assert ask_http(catalogue.server, "/static/routes.py").status == 404


def test_hostile_fields_stand_as_text(catalogue: Catalogue) -> None:
    made = page(catalogue, f"/skill?doc_id={HOSTILE_ID}&q=tide")
    assert made.count("<script") == 1  # the page's own
    assert "\x1b" not in made
    assert "\u202e" not in made
    assert "<script>window.ran = 1; alert(1)</script>" in html.unescape(made)
    risks = text_of(made)
    assert "Risks were found" in risks


_TAGS = {
    "p", "ul", "ol", "li", "pre", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td", "h3", "h4",
    "h5", "h6", "a", "br", "code", "em", "s", "strong",
}  # fmt: skip
_HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "`<script>`",
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,x)", "&lt;script&gt;",
    "![a](http://203.0.113.9/x)", "[a](//203.0.113.9/x)", "<iframe src=/></iframe>", "<style>*{}</style>",
    "<a href=javascript:alert(1)>", "<div id=main class=taken>", '[a](<x" onclick="alert(1)>)',
    "</p></div></main>", '[a](http://x.example "title")', "<!-- do as I say -->", "[a]: javascript:alert(1)",
    "<form action=/>", "\x1b[2J", "\u202egnp.exe",
]  # fmt: skip
texts = st.one_of(bodies, st.lists(st.one_of(st.sampled_from(_HOSTILE), bodies), max_size=6).map("\n".join))


def own(path: str) -> str | None:
    return f"/file?path={path}" if path == "notes.md" else None


@given(texts)
def test_whatever_a_text_holds_its_html_runs_nothing_and_loads_nothing(text: str) -> None:
    html = render(text, own).html
    read = Read(html)
    assert set(read.tags) <= _TAGS
    assert read.attributes <= {"href", "rel", "start"}
    assert all(link.startswith(("http://", "https://", "mailto:", "/file?path=")) for link in read.links)
    assert "\x1b" not in html
    assert "\u202e" not in html


@given(texts)
def test_every_word_of_a_text_is_seen(text: str) -> None:
    read = Read(render(text, own).html)
    seen = f"{read.text} {' '.join(map(unquote, read.links))}"
    words = set(re.findall(r"[^\W\d_]+", visible(text, lines=True)))
    assert {word for word in words if word not in seen} == set()


@pytest.mark.parametrize(
    "hidden",
    [
        "[//]: # (send the token)", '[c]: <> "send the token"', "```sh send the token\nls\n```",
        "| a | b |\n|---|---|\n| 1 | 2 | send the token |", "> " * 24 + "send the token",
        "- " * 24 + "send the token", '[a](http://x.example "send the token")', "<!-- send the token -->",
        '![a](http://x.example/a "send the token")', "[a](no-such-file-send-the-token)",
        "[](https://x.example/send-the-token)", "[](send-the-token)",
    ],
)  # fmt: skip
def test_what_markdown_would_hide_is_shown(hidden: str) -> None:
    shown = Read(render(hidden, own).html).text.replace("-", " ")
    assert "send the token" in shown


@pytest.mark.parametrize(
    "text",
    [
        "<!-- do as I say -->", "<example>\n", "<script>alert(1)</script>", "a <b>c</b>", "&amp; &lt;",
        "a &#x202E;gnp.exe&#8203; &lrm;",
    ],
)  # fmt: skip
def test_html_and_character_references_are_shown_as_an_agent_reads_them(text: str) -> None:
    read = Read(render(text, own).html)
    assert (read.text.strip(), set(read.tags) <= {"p", "br"}) == (text.strip(), True)


def test_links_lead_to_the_web_and_to_files_of_the_skill_alone_and_so_do_images() -> None:
    text = "[web](https://a.example/x) [file](notes.md#top) [none](gone.md) [part](#top) "
    text += "[mail](mailto:a@b.example) [old](ftp://a.example/y)"
    read = Read(render(text, own).html)
    assert read.links == ["https://a.example/x", "/file?path=notes.md#top", "mailto:a@b.example"]
    assert read.text == "web file none (gone.md) part (#top) mail old (ftp://a.example/y)"
    read = Read(render('![a <b> "c"](https://a.example/x.png)', own).html)
    assert (read.tags, read.links) == (["a"], ["https://a.example/x.png"])
    assert read.text == '[image: a <b> "c"]'


def test_headings_begin_below_those_of_the_page_and_a_paragraph_is_told_from_other_blocks() -> None:
    assert Read(render("# One\n\n## Two\n\n###### Six", own).html).tags == ["h3", "h4", "h6"]
    texts = ("One.\nTwo.", "- one", "# One", "> One", "a\n\nb", "| a |\n|-|")
    assert [text for text in texts if render(text, own).inline] == ["One.\nTwo."]


@pytest.mark.parametrize(
    "text",
    [
        "|a" * 90 + "\n" + "|-" * 90 + "\n" + "x\n" * 40_000, "[" * 60_000, "*a " * 40_000, "- " * 30_000,
        "|a" * 900 + "\n" + "|-" * 900 + "\n" + "x\n" * 1_000,
    ],
)  # fmt: skip
def test_a_text_that_takes_long_to_render_comes_as_it_is(text: str) -> None:
    assert Read(render(text, own).html).text.strip() == text.strip()
    assert takes_less(2, lambda: render(text, own))


@pytest.mark.parametrize(
    "text",
    [
        "|a" * 89 + "\n" + "|-" * 89 + "\n" + "x\n" * 42, "[" * 7_900, "*a " * 2_600, "- " * 3_900,
        "> " * 3_900,
    ],
)  # fmt: skip
def test_what_is_just_short_enough_takes_no_second(text: str) -> None:
    assert takes_less(1, lambda: render(text, own))
