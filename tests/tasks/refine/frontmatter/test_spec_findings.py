from __future__ import annotations

import pytest

from tasks.refine.frontmatter.spec_findings import allowed_tools, on_fields
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
