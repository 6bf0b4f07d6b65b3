from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.crawl.mcp.awesome import ListEntry, entries

URL = "https://github.com/ann/kettle"


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
        (
            " [![score](https://x.example/b.svg)](https://x.example/s) 🐍 - Boils water",
            ("🐍",),
            "Boils water",
        ),
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


def test_brackets_in_names_and_parentheses_in_urls_belong_to_them() -> None:
    entry = only("- [ann/kettle [beta]](https://x.example/a_(b)) - Boils")

    assert (entry.name, entry.url) == ("ann/kettle [beta]", "https://x.example/a_(b)")


@pytest.mark.parametrize(
    "text",
    [
        "* [Kettles](#kettles)",
        "* 🫖 - [Kettles](#kettles)",
        "See [this](https://x.example) too",
        f"- kettles, see [this]({URL})",
        f"```\n- [Kettle]({URL})\n```",
        "- https://x.example",
        "",
    ],
)
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
