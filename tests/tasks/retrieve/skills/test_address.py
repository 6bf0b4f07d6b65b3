from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.errors import UnknownDocument
from tasks.retrieve.skills.address import Address, file_uri, folder_uri, is_segment, parse_uri

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
PATHS = st.lists(TEXTS.map(lambda t: t.replace("/", "-")), max_size=3).map("/".join)


def test_an_address_names_the_document_its_name_and_the_file() -> None:
    uri = file_uri("owner/repo/my skills/a+b", "my skill", "docs/é.md")
    assert uri == "skill://owner+repo+my%20skills+a%2Bb/my%20skill/docs/%C3%A9.md"
    assert parse_uri(uri) == Address("owner/repo/my skills/a+b", "my skill", "docs/é.md")


@given(TEXTS, TEXTS, PATHS)
def test_every_address_is_read_back(doc_id: str, name: str, path: str) -> None:
    assume(is_segment(name))
    assert parse_uri(file_uri(doc_id, name, path)) == Address(doc_id, name, path)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_no_skill_lies_in_the_folder_of_another(one: str, name: str, other: str, rest: str) -> None:
    assume(is_segment(name) and is_segment(other) and one != f"{one}/{rest}")
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
