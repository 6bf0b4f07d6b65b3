from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import BundledFile, Finding
from tasks.refine.frontmatter.spec_findings import (
    about_tokens,
    allowed_tools,
    on_body,
    on_description,
    on_fields,
    on_links,
    on_offering,
    relative_links,
)
from tasks.refine.text.strict_yaml import Value


@pytest.mark.parametrize(
    ("value", "tools", "codes"),
    [
        ("Read Bash(git add:*)", ("Read", "Bash(git add:*)"), ["tools.declared"]),
        ("Read, Bash(git:*),Read", ("Read", "Bash(git:*)"), ["tools.declared", "tools.comma"]),
        ("Bash(a, b) Read", ("Bash(a, b)", "Read"), ["tools.declared"]),
        (["Read", "Bash(npm run x)"], ("Read", "Bash(npm run x)"), ["tools.declared", "tools.list"]),
        (["Read", {"a": "b"}], ("Read",), ["tools.declared", "tools.list", "tools.not-text"]),
        ({"a": "b"}, (), ["tools.not-text"]),
        ("Bash(unclosed a b", ("Bash(unclosed a b",), ["tools.declared"]),
        ("", (), []),
        (None, (), []),
    ],
)
def test_tools_are_read_in_each_spelling(
    value: Value | None, tools: tuple[str, ...], codes: list[str]
) -> None:
    named, found = allowed_tools(value)
    assert named == tools
    assert [f.code for f in found] == codes
    assert not tools or found[0].message == " ".join(tools)


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"name": "a", "license": "MIT"}, []),
        ({"zone": "a", "origin": "b"}, ["keys.unknown"]),
        ({"compatibility": "x" * 500}, []),
        ({"compatibility": "x" * 501}, ["compatibility.length"]),
        ({"compatibility": ""}, ["compatibility.length"]),
        ({"compatibility": ["x"]}, ["compatibility.not-text"]),
        ({"metadata": {"a": "b"}}, []),
        ({"metadata": {"a": ["b"]}}, ["metadata.nested"]),
        ({"metadata": "a"}, ["metadata.not-mapping"]),
        ({"allowed-tools": "a,b"}, ["tools.declared", "tools.comma"]),
    ],
)
def test_fields_are_judged_by_the_specification(fields: dict[str, Value], codes: list[str]) -> None:
    assert [f.code for f in on_fields(fields)] == codes


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"disable-model-invocation": "True"}, ["offer.person-only"]),
        ({"metadata": {"internal": "yes"}}, ["offer.internal"]),
        ({"metadata": {"internal": ["true"]}, "disable-model-invocation": "false"}, []),
        ({"metadata": "internal: true", "user-invocable": "false"}, []),
    ],
)
def test_who_may_be_offered_a_skill_is_read(fields: dict[str, Value], codes: list[str]) -> None:
    assert [f.code for f in on_offering(fields)] == codes
    assert "keys.unknown" not in [f.code for f in on_fields(fields)]


@pytest.mark.parametrize(
    ("description", "codes"),
    [
        ("Fires clay in a kiln.", []),
        ("This skill fires clay.", ["description.filler"]),
        ("A skill for firing clay.", ["description.filler"]),
        ("Guide to glazes.", ["description.filler"]),
        ("This kiln is hot.", []),
        ("Clay-Firing", ["description.name-only"]),
        ("Fires <b>clay</b>.", ["description.markup"]),
        ("Fires clay at < 900 and > 800 degrees.", []),
    ],
)
def test_a_description_that_helps_nobody_choose_is_found(description: str, codes: list[str]) -> None:
    assert [f.code for f in on_description(description, "clay firing")] == codes


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("x\n" * 499, []),
        ("x\n" * 500, ["body.long"]),
        ("clay " * 4_000, []),
        ("clay " * 4_004, ["body.many-tokens"]),
        ("粘土" * 3_400, ["body.many-tokens"]),
        ("```\nopen", ["body.unbalanced-fence"]),
    ],
)
def test_a_body_beyond_the_advice_is_found(body: str, codes: list[str]) -> None:
    assert [f.code for f in on_body(body)] == codes


def test_tokens_are_estimated_by_script() -> None:
    assert about_tokens("clay" * 10) == 10
    assert about_tokens("粘土" * 10) == 15


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


def test_a_link_into_another_skill_s_folder_is_no_missing_file() -> None:
    body = "[a](roles/writer/SKILL.md) [b](roles/writer) [c](roles) [d](roles/writer/x.md) [e](roles/writers)"
    (missing,) = on_links(body, (), ["roles/writer"])
    assert (missing.code, missing.message) == ("links.missing", "roles/writers")


def test_nothing_is_said_of_a_bundle_that_is_unknown_but_of_links_that_leave_it() -> None:
    body = "[a](scripts/fire.py) [b](../oven.md)"
    assert [f.code for f in on_links(body, None)] == ["links.outside"]


def test_many_missing_files_are_counted() -> None:
    (missing,) = found(" ".join(f"[x](f{i}.md)" for i in range(9)))
    assert missing.message.endswith("f4.md and 4 more")


@given(st.text(alphabet="[](){}<>`!#./ab\n: "))
def test_any_text_yields_normal_relative_paths(body: str) -> None:
    assert all(link and not link.startswith("/") for link in relative_links(body))
