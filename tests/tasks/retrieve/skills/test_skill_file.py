from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.retrieve.skills.skill_file import front_matter_of

_HEAD = "---\nname: bees\ndescription: Keeps bees\n"
PLAIN = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=20)
VALUES = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9) | PLAIN | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(PLAIN, VALUES, max_size=4))
def test_every_field_is_read_with_its_type(fields: dict[str, object]) -> None:
    fields |= {"name": "bees", "description": "Keeps bees"}
    block = yaml.safe_dump(fields)
    assert front_matter_of(f"---\n{block}---\n\n# Bees\n".encode()) == fields


@given(st.binary(max_size=80))
def test_no_bytes_make_it_fail(content: bytes) -> None:
    found = front_matter_of(_HEAD.encode() + content + b"\n---\n")
    assert found is None or json.loads(json.dumps(found)) == found


def test_a_date_stays_as_it_is_written() -> None:
    found = front_matter_of(f"{_HEAD}updated: 2026-09-13\nversion: 1.0\n---\n".encode())
    assert found == {
        "name": "bees", "description": "Keeps bees", "updated": "2026-09-13", "version": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "# Bees\n", "---\nname: bees\n---\n", "---\nname: [bees]\ndescription: x\n---\n", f"\n{_HEAD}---\n",
        f"\ufeff{_HEAD}---\n", f"{_HEAD}", f"{_HEAD}a: &x 1\nb: *x\n---\n", f"{_HEAD}name: twice\n---\n",
        f"{_HEAD}1: one\n---\n", f"{_HEAD}n: .nan\n---\n", f"{_HEAD}b: !!binary aGk=\n---\n",
        f"{_HEAD}x: a: b\n---\n",
        f"{_HEAD}{'k: ' * 9}\n---\n", f"---\nname: ' '\ndescription: x\n---\n{_HEAD}",
    ],
)  # fmt: skip
def test_what_hosts_may_read_otherwise_is_not_taken(text: str) -> None:
    assert front_matter_of(text.encode()) is None


def test_other_bytes_than_utf_8_are_not_taken() -> None:
    assert front_matter_of(f"{_HEAD}---\n".encode("utf-16")) is None
    assert front_matter_of(f"{_HEAD}---\ncafé\n".encode("latin-1")) is None
