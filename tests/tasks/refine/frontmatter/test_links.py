from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import BundledFile, Finding
from tasks.refine.frontmatter.spec_findings import on_links, relative_links


@pytest.mark.parametrize(
    ("body", "links"),
    [
        ("See [the cones](references/cones.md).", ("references/cones.md",)),
        ("![pot](./assets/pot.png 'a pot')", ("assets/pot.png",)),
        ("[a](<my notes.md>) and [b](my%20notes.md#top)", ("my notes.md",)),
        ("[list]: scripts/list.py 'title'", ("scripts/list.py",)),
        ("[a](cones.md?raw=1#x)", ("cones.md",)),
        ("[up](../oven/SKILL.md)", ("../oven/SKILL.md",)),
        ("[x](https://example.org/a.md) [y](#top) [z](/etc/a) [m](mailto:a@b)", ()),
        ("[x]({{path}}/a.md) [y](path/to/*.md) [z](...)", ()),
        ("`[x](a.md)` and\n```\n[y](b.md)\n```", ()),
        ("a [b] (c.md)", ()),
        ("", ()),
    ],
)
def test_links_to_files_are_read_outside_code(body: str, links: tuple[str, ...]) -> None:
    assert relative_links(body) == links


def found(body: str, *files: str) -> list[Finding]:
    return list(on_links(body, tuple(BundledFile(path, 1, "0") for path in files)))


def test_a_link_to_a_file_that_the_bundle_lacks_is_found() -> None:
    body = "[a](scripts/fire.py) [b](scripts/cool.py) [c](references/) [d](SKILL.md)"
    (missing,) = found(body, "scripts/fire.py", "references/cones.md")
    assert (missing.code, missing.message) == ("links.missing", "scripts/cool.py")
    assert found(body, "scripts/fire.py", "scripts/cool.py", "references/deep/cones.md") == []


def test_nothing_is_said_of_a_bundle_that_is_unknown_but_of_links_that_leave_it() -> None:
    body = "[a](scripts/fire.py) [b](../oven.md)"
    assert [f.code for f in on_links(body, None)] == ["links.outside"]


def test_many_missing_files_are_counted() -> None:
    (missing,) = found(" ".join(f"[x](f{i}.md)" for i in range(9)))
    assert missing.message.endswith("f4.md and 4 more")


@given(st.text(alphabet="[](){}<>`!#./ab\n: "))
def test_any_text_yields_normal_relative_paths(body: str) -> None:
    assert all(link and not link.startswith("/") for link in relative_links(body))
