"""Awesome lists: entries in Markdown, and lists that change or break."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import SourceError, WrongInput
from storage.schemas import Dropped, Listing, RawDocument
from tasks.crawl.mcp.awesome import ListEntry, entries, servers_of
from tests.support.crawl.crawling import Crawler, opened, settings_of
from tests.support.marketplace.messages import Fault
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

LIST = """# Servers

* [Kitchen](#kitchen)

### 🍳 <a name="kitchen"></a>Kitchen

- [ann/kettle](https://github.com/ann/kettle) 🐍 ☁️ - Boils water
- [bob/oven](https://github.com/bob/appliances/tree/main/packages/oven) 🏎️ - Bakes bread
- [bob/fridge](https://gitlab.example/bob/fridge.git) Keeps milk cool

## Frameworks

- [cat/toolkit](https://github.com/cat/toolkit) - Builds servers
"""
URL = "https://github.com/ann/kettle"


def documents(text: str) -> list[RawDocument]:
    return [row for row in servers_of(text, "awesome:list") if isinstance(row, RawDocument)]


def dropped(text: str) -> list[tuple[str, str, str | None]]:
    rows = servers_of(text, "awesome:list")
    return [(row.reason, row.doc_id, row.lost_to) for row in rows if isinstance(row, Dropped)]


def entry(url: str, name: str = "kettle") -> str:
    return f"- [{name}]({url}) - Boils\n"


def test_an_entry_is_a_document_with_what_the_list_says() -> None:
    kettle = documents(LIST)[0]
    assert (kettle.doc_id, kettle.kind, kettle.repo) == ("ann/kettle", "mcp-server", "ann/kettle")
    assert (kettle.author, kettle.category, kettle.tags) == ("ann", "Kitchen", ("python", "cloud"))
    assert json.loads(kettle.content or b"") == {
        "name": "ann/kettle", "description": "Boils water", "url": "https://github.com/ann/kettle",
        "section": "Kitchen", "flags": ["🐍", "☁"],
    }  # fmt: skip
    assert kettle.raw_hash == hashlib.sha256(kettle.content or b"").hexdigest()
    *rows, left_out = servers_of(LIST, "awesome:list")
    for listing, document in zip(rows[::2], rows[1::2], strict=True):
        assert isinstance(listing, Listing)
        assert isinstance(document, RawDocument)
        assert (listing.source_id, listing.kind, listing.url) == (document.doc_id, "mcp-server", document.url)
    assert isinstance(left_out, Dropped)
    assert left_out.reason == "not-a-server"
    assert left_out.detail == "line 13, cat/toolkit, cat/toolkit: stands under Frameworks"


@pytest.mark.parametrize(
    ("url", "doc_id"),
    [
        ("https://github.com/Ann/Kettle", "Ann/Kettle"),
        ("https://github.com/ann/kettle.git", "ann/kettle"),
        ("https://github.com/ann/kettle/", "ann/kettle"),
        ("http://www.github.com/ann/kettle?tab=readme#use", "ann/kettle"),
        ("https://github.com/ann/kettle/tree/main", "ann/kettle"),
        ("https://github.com/ann/kettle/tree/main/src/mcp", "ann/kettle/src/mcp"),
        ("https://github.com/ann/kettle/blob/main/docs/mcp.md", "ann/kettle/docs"),
        ("https://github.com/ann/kettle/blob/main/README.md", "ann/kettle"),
        ("https://github.com/ann/kettle/mcp", "github.com/ann/kettle/mcp"),
        ("https://gitlab.example/tools/ann/kettle.git", "gitlab.example/tools/ann/kettle"),
        ("https://kettle.example/", "kettle.example"),
        ("https://kettle.example/../a%2Fb/./mcp", "kettle.example/a/b/mcp"),
        ("https://user:secret@kettle.example/mcp", "kettle.example/mcp"),
    ],
)
def test_the_id_follows_from_the_url(url: str, doc_id: str) -> None:
    found = documents(entry(url))[0]
    assert found.doc_id == doc_id
    assert "secret" not in f"{found}"


@pytest.mark.parametrize(
    "url", ["README-th.md", "", "mailto:ann@kettle.example", "https://", "http://[::1", "ftp://a.example"]
)
def test_a_link_that_leads_to_no_page_is_told(url: str) -> None:
    assert dropped(entry(url)) == [("no-url", "", None)]


def test_repositories_are_compared_in_any_letter_case_and_folders_apart() -> None:
    text = (
        entry("https://github.com/ann/kettle")
        + entry("https://github.com/Ann/Kettle.git", "again")
        + entry("https://github.com/ann/kettle/tree/main/mcp")
    )
    assert [d.doc_id for d in documents(text)] == ["ann/kettle", "ann/kettle/mcp"]
    assert dropped(text) == [("duplicate_id", "Ann/Kettle", "ann/kettle")]


def test_who_leaves_the_list_is_retired_and_who_joins_it_is_new(tmp_path: Path) -> None:
    path, crawler = tmp_path / "list.md", Crawler(tmp_path / "root", settings_of({}))
    path.write_text(LIST, "utf-8")
    spec = f"awesome:{path}"
    assert crawler.crawl(spec).new == 3
    assert (crawler.crawl(spec).unchanged, crawler.crawl(spec).listed) == (3, 3)
    assert opened(spec).version() == hashlib.sha256(LIST.encode()).hexdigest()
    told = LIST.replace("bob/appliances", "bob/machines")
    path.write_text(told.replace("Boils water", "Boils milk"), "utf-8")
    report = crawler.crawl(spec)
    assert (report.state, report.new, report.changed) == ("complete", 1, 1)
    assert (report.unchanged, report.retired) == (1, 1)
    assert set(crawler.held()) == {"ann/kettle", "bob/machines/packages/oven", "gitlab.example/bob/fridge"}
    path.write_text("Moved elsewhere.\n", "utf-8")
    report = crawler.crawl(spec)
    assert (report.state, report.failed, len(crawler.held())) == ("failed", {"no-entries": 1}, 3)
    path.unlink()
    with pytest.raises(SourceError) as caught:
        opened(spec).version()
    assert caught.value.reason == "missing"
    with pytest.raises(WrongInput, match="http"):
        opened("awesome:ftp://kettle.example/list.md")


def test_a_list_as_it_was_is_not_sent_again(world: World, market: Marketplace, crawler: Crawler) -> None:
    spec = "awesome:https://raw.githubusercontent.com/ann/lists/main/README.md"
    world.repository("ann/lists").commit({"README.md": LIST.encode()})
    assert crawler.crawl(spec, limit=1).new == 1
    report = crawler.crawl(spec)  # what was read in part is sent again
    assert (report.state, report.new, report.requests) == ("complete", 2, 1)
    assert (market.requests[-1].status, market.requests[-1].path) == (200, "/ann/lists/main/README.md")
    report = crawler.crawl(spec)
    assert market.requests[-1].status == 304
    assert (report.state, report.unchanged, report.retired, report.new) == ("complete", 3, 0, 0)
    world.repository("ann/lists").commit({"README.md": LIST.replace("Boils", "Heats").encode()})
    assert crawler.crawl(spec).changed == 1
    market.faults.script("raw:*", [Fault("html"), *[Fault("500")] * 3])
    for reason in ("html", "server"):
        report = crawler.crawl(spec)
        assert (report.state, report.failed) == ("failed", {reason: 1})
    assert len(crawler.held()) == 3


def only(line: str) -> ListEntry:
    found = list(entries(line))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("rest", "flags", "description"),
    [
        (" 🐍 ☁️ - Boils water", ("🐍", "☁"), "Boils water"),
        (" 🐍☁️🏠 - Boils water", ("🐍", "☁", "🏠"), "Boils water"),
        (" #️⃣ 🏠 – Boils water", ("#⃣", "🏠"), "Boils water"),
        (" 🎖️ Boils water", ("🎖",), "Boils water"),
        (" ☕ 🐧- boils water", ("☕", "🐧"), "boils water"),
        (" 📇 ☁️/🏠 - Boils water", ("📇", "☁", "🏠"), "Boils water"),
        (" - 🦀 🏠 - Boils water", ("🦀", "🏠"), "Boils water"),
        (" - Boils water - and milk", (), "Boils water - and milk"),
        (" — Boils water ☁️", (), "Boils water ☁️"),
        (": Boils water", (), "Boils water"),
        (" Boils water", (), "Boils water"),
        (" 👩‍🍳 - Boils water", ("👩‍🍳",), "Boils water"),
        (" [![score](https://x.example/b.svg)](https://x.example/s) 🐍 - Boils", ("🐍",), "Boils"),
        (" - [Kettles](https://kettle.example) boil", (), "[Kettles](https://kettle.example) boil"),
        (" 🐍", ("🐍",), ""),
        ("", (), ""),
    ],
)
def test_flags_and_dash_are_optional(rest: str, flags: tuple[str, ...], description: str) -> None:
    entry = only(f"- [ann/kettle]({URL}){rest}")
    assert (entry.name, entry.url, entry.flags, entry.description) == ("ann/kettle", URL, flags, description)


@pytest.mark.parametrize(
    "line",
    [
        f"- **[Kettle]({URL})** - Boils water",
        f"* [Kettle]({URL}) - Boils water",
        f"  + [Kettle]({URL}) Boils water",
        f"1. [Kettle]({URL}) - Boils water",
        f'- [Kettle]({URL} "a kettle") - Boils water',
        f'- <img height="12" src="https://x.example/i.png" alt="logo" /> **[Kettle]({URL})** - Boils water\r',
    ],
)
def test_bullets_bold_links_titles_and_logos_make_no_difference(line: str) -> None:
    entry = only(line)
    assert (entry.name, entry.url, entry.description) == ("Kettle", URL, "Boils water")
    entry = only("- [ann/kettle [beta]](https://x.example/a_(b)) - Boils")
    assert (entry.name, entry.url) == ("ann/kettle [beta]", "https://x.example/a_(b)")


@pytest.mark.parametrize(
    "text",
    [
        "* [Kettles](#kettles)", "* 🫖 - [Kettles](#kettles)", "See [this](https://x.example) too",
        f"- kettles, see [this]({URL})", f"```\n- [Kettle]({URL})\n```", "- https://x.example", "",
    ],
)  # fmt: skip
def test_a_table_of_contents_prose_and_code_are_no_entries(text: str) -> None:
    assert list(entries(text)) == []


def test_an_entry_knows_the_headings_above_it() -> None:
    text = f"""# Lists [![badge](https://x.example/b.svg)](https://x.example)
## Servers
### 🔥 <a name="hot"></a>Hot & [cold](https://x.example) ##
- [a]({URL})
### Tea
- [b]({URL})
## Clients
- [c]({URL})
"""
    assert [(e.name, e.line, e.sections) for e in entries(text)] == [
        ("a", 4, ("Lists", "Servers", "Hot & cold")),
        ("b", 6, ("Lists", "Servers", "Tea")),
        ("c", 8, ("Lists", "Clients")),
    ]


def test_indented_lines_go_on_with_a_description_and_nested_items_do_not() -> None:
    text = f"- [a]({URL}) - Boils\n  water\n\tand milk\n  - fast\n- [b]({URL})\n\n  apart\n"
    assert [(e.name, e.description) for e in entries(text)] == [("a", "Boils water and milk"), ("b", "")]


@given(st.text(st.sampled_from("-*#[]()<>!`\n \t🐍️‍⃣ab/:1."), max_size=80))
def test_no_text_raises_and_every_entry_stands_on_its_line(text: str) -> None:
    for entry in entries(text):
        assert entry.url in text.split("\n")[entry.line - 1]
