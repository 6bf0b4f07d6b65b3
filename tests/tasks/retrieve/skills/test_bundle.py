from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UnknownDocument
from tasks.retrieve.skills.bundle import (
    Address,
    ServedBundle,
    ServedFile,
    SkillFile,
    file_uri,
    folder_uri,
    front_matter_of,
    is_segment,
    parse_uri,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
NAMES = TEXTS.filter(is_segment)
PATHS = st.lists(TEXTS.map(lambda t: t.replace("/", "-")), max_size=3).map("/".join)


def test_an_address_names_the_document_its_name_and_the_file() -> None:
    uri = file_uri("owner/repo/my skills/a+b", "my skill", "docs/é.md")
    assert uri == "skill://owner+repo+my%20skills+a%2Bb/my%20skill/docs/%C3%A9.md"
    assert parse_uri(uri) == Address("owner/repo/my skills/a+b", "my skill", "docs/é.md")


@given(TEXTS, NAMES, PATHS)
def test_every_address_is_read_back(doc_id: str, name: str, path: str) -> None:
    assert parse_uri(file_uri(doc_id, name, path)) == Address(doc_id, name, path)


@given(TEXTS, NAMES, NAMES, TEXTS)
def test_no_skill_lies_in_the_folder_of_another(one: str, name: str, other: str, rest: str) -> None:
    assert not folder_uri(f"{one}/{rest}", other).startswith(f"{folder_uri(one, name)}/")


@given(st.text(max_size=60))
def test_any_other_text_is_refused_or_is_the_address_that_it_is_read_as(text: str) -> None:
    try:
        found = parse_uri(f"skill://{text}")
    except UnknownDocument:
        return
    assert file_uri(*found).casefold() == f"skill://{text}".casefold()


@pytest.mark.parametrize(
    "uri",
    [
        "skill://a+b/c/", "skill://a+b", "skill://a+b//x", "file:///etc/passwd", "skill:/a/b/c",
        "skill://a%2fb/c/d e",
        "skill://a/%2e%2e/SKILL.md", "skill://a/b%2Fc/SKILL.md", "skill://a/\ud800/SKILL.md", "skill://a/%ff/x",
        "skill://a/b/c?d", "", "skill://",
    ],
)  # fmt: skip
def test_what_is_written_otherwise_leads_nowhere(uri: str) -> None:
    with pytest.raises(UnknownDocument, match="nothing is served at"):
        parse_uri(uri)


def test_hosts_may_lower_the_first_segment() -> None:
    assert parse_uri("skill://OWNER+Repo/name/SKILL.md").doc_id == "OWNER/Repo"


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


MOST_FILES, MOST_BYTES = 512, 16 * 1024 * 1024


def resources(sizes: list[int]) -> object:
    skill = SkillFile(b"", {"name": "bread"}, mended=False)
    files = {f"{number}.txt": ServedFile(size, "0" * 64, lambda: b"") for number, size in enumerate(sizes)}
    return ServedBundle("local/bread", skill, {}, files).entry()["resources"]


@pytest.mark.parametrize("sizes", [[1] * MOST_FILES, [MOST_BYTES]])
def test_a_skill_within_the_limits_is_listed_file_by_file(sizes: list[int]) -> None:
    listed = resources(sizes)
    assert isinstance(listed, list)
    assert [file["size"] for file in listed] == sizes


@pytest.mark.parametrize("sizes", [[1] * (MOST_FILES + 1), [MOST_BYTES, 1]])
def test_a_skill_beyond_them_is_dynamic(sizes: list[int]) -> None:
    assert resources(sizes) == "dynamic"
