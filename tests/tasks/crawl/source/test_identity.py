"""The identity of a skill by the URL of its repository."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.crawl.source.identity import (
    GithubUrl,
    author_of,
    doc_key,
    hide_credentials,
    make_doc_id,
    parse_github_url,
    public_url,
    repository_name,
    skill_url,
    split_by_refs,
)

ROOT = GithubUrl("ada", "herbs")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/Ada/Herbs.git", "Ada/Herbs"),
        ("https://github.com/ada/herbs/", "ada/herbs"),
        ("https://GitHub.com:443/ada/herbs", "ada/herbs"),
        ("https://www.github.com/ada/herbs", "ada/herbs"),
        ("https://user:word@github.com/ada/herbs.git", "ada/herbs"),
        ("git@github.com:ada/herbs.git", "ada/herbs"),
        ("ssh://git@github.com:22/ada/herbs.git", "ada/herbs"),
        ("ssh://git@ssh.github.com:443/ada/herbs.git", "ada/herbs"),
        ("https://gitlab.example/group/sub/herbs.git", "gitlab.example/group/sub/herbs"),
        ("git@code.example:ada/herbs.git", "code.example/ada/herbs"),
        ("git://127.0.0.1:9418/herbs", "127.0.0.1/herbs"),
        ("https://code.example/ada/herb%20garden?x=1", "code.example/ada/herb garden"),
        ("file:///srv/herbs.git", "local/herbs"),
        ("file:///srv/herbs/.git", "local/herbs"),
        ("file:///srv/herbs/", "local/herbs"),
        ("file:///srv/why%3F.git", "local/why?"),
        ("file:///", "local/root"),
    ],
)
def test_a_repository_is_named_by_host_and_path(url: str, name: str) -> None:
    assert repository_name(url) == name


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://token@code.example/a/b.git", "https://code.example/a/b.git"),
        ("https://me:p@ss@code.example:8443/a/b", "https://code.example:8443/a/b"),
        ("https://code.example/a/b?private_token=abc#x", "https://code.example/a/b"),
        ("ssh://git:word@code.example/a/b", "ssh://git@code.example/a/b"),
        ("git@code.example:a/b.git", "git@code.example:a/b.git"),
        ("file:///srv/a?b#c", "file:///srv/a?b#c"),
    ],
)
def test_a_public_url_has_no_credentials(url: str, public: str) -> None:
    assert public_url(url) == public


@given(
    user=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
    password=st.text(
        st.characters(codec="ascii", exclude_characters="/", categories=["L", "N", "P"]), min_size=8
    ),
)
def test_no_password_survives_in_any_form(user: str, password: str) -> None:
    url = f"https://{user}:QQ{password}QQ@code.example/a/b.git"
    shown = [public_url(url), repository_name(url), skill_url(url, "0" * 40, "f"), str(author_of(url))]
    shown.append(hide_credentials(f"fatal: unable to access '{url}/': QQ{password}QQ", url))
    assert not any(f"QQ{password}QQ" in text for text in shown)


def test_a_percent_encoded_password_is_hidden_decoded_too() -> None:
    assert "s3/cret" not in hide_credentials("denied: s3/cret", "https://me:s3%2Fcret@code.example/a")


@pytest.mark.parametrize(
    "url", ["https://me:se/cret@code.example/a", "https://me:sec@x:ret@h:pw/a", "secret"]
)
def test_what_is_no_url_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(WrongInput) as caught:
        repository_name(url)
    assert "cret@" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "author"),
    [
        ("https://github.com/ada/herbs", "ada"),
        ("git@code.example:ada/herbs.git", "ada"),
        ("https://code.example/herbs", None),
        ("file:///srv/ada/herbs", None),
    ],
)
def test_the_author_is_the_owner(url: str, author: str | None) -> None:
    assert author_of(url) == author


def test_a_doc_id_ends_with_the_folder_and_is_compared_case_folded() -> None:
    assert make_doc_id("ada/herbs", "") == "ada/herbs"
    assert make_doc_id("ada/herbs", "skills/Mint") == "ada/herbs/skills/Mint"
    assert doc_key("Ada/STRASSE") == doc_key("ada/straße")


def test_a_skill_on_github_is_shown_at_its_commit() -> None:
    url = "git@github.com:ada/herbs.git"
    assert skill_url(url, "c0ffee", "a b/ü") == "https://github.com/ada/herbs/tree/c0ffee/a%20b/%C3%BC"
    assert skill_url(url, "c0ffee", "") == "https://github.com/ada/herbs/tree/c0ffee"
    assert skill_url("https://me:word@code.example/a/b", "c0ffee", "x") == "https://code.example/a/b"


def tree(*rest: str) -> GithubUrl:
    return GithubUrl("ada", "herbs", "tree", rest)


def blob(*rest: str) -> GithubUrl:
    return GithubUrl("ada", "herbs", "blob", rest)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/ada/herbs", ROOT),
        ("http://www.github.com/ada/herbs/", ROOT),
        ("HTTPS://GitHub.com:443/ada//herbs.git", ROOT),
        (" https://github.com/ada/herbs?tab=readme#mint\n", ROOT),
        ("https://github.com/ada/herbs/tree/main", tree("main")),
        ("https://github.com/ada/herbs/tree/main/", tree("main")),
        ("https://github.com/ada/herbs.git/tree/main/skills/mint/", tree("main", "skills", "mint")),
        ("https://github.com/ada/herbs/tree/main/skills/mint/SKILL.md", tree("main", "skills", "mint")),
        ("https://github.com/ada/herbs/blob/main/skills/mint/skill.md", blob("main", "skills", "mint")),
        ("https://github.com/ada/herbs/blob/main/SKILL.md?plain=1#L3", blob("main")),
        ("https://github.com/ada/herbs/blob/main/docs/README.md", blob("main", "docs")),
        ("https://github.com/ada/herbs/tree/SKILL.md", tree("SKILL.md")),
        ("https://github.com/ada/herbs/tree/v1/dry%20it/%C3%BCber%23", tree("v1", "dry it", "über#")),
        ("https://github.com/ada/herbs/tree/fix%2Fmint/skills", tree("fix", "mint", "skills")),
        ("https://github.com/ada/herbs/tree/main/{% if a == 'b' %}.c", tree("main", "{% if a == 'b' %}.c")),
        ("https://github.com/a/.git", GithubUrl("a", ".git")),
        ("https://github.com/a_corp/-.x_", GithubUrl("a_corp", "-.x_")),
    ],
)
def test_a_github_url_names_a_folder_of_a_repository(url: str, expected: GithubUrl) -> None:
    assert parse_github_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        None, "", "mint", "github.com/ada/herbs", "git@github.com:ada/herbs.git",
        "ftp://github.com/ada/herbs", "https://gist.github.com/ada/herbs",
        "https://raw.githubusercontent.com/ada/herbs/main/SKILL.md",
        "https://github.com.example.org/ada/herbs", "https://github.com@example.org/ada/herbs",
        "https://ada:secret@github.com/ada/herbs", "https://github.com:8443/ada/herbs",
        "https://github.com:x/ada/herbs", "https://[github.com/ada/herbs", "https://github.com",
        "https://github.com/ada", "https://github.com/topics/herbs", "https://github.com/ada/..",
        "https://github.com/ada/%2e%2e", "https://github.com/-ada/herbs", "https://github.com/a.da/herbs",
        "https://github.com/ada/her bs", "https://github.com/ada/herbs/tree",
        "https://github.com/ada/herbs/blob/main", "https://github.com/ada/herbs/issues/1",
        "https://github.com/ada/herbs/tree/main/../../other",
        "https://github.com/ada/herbs/tree/main/%2e%2e/x", "https://github.com/ada/herbs/tree/main/%00",
        "https://github.com/ada/herbs/tree/main/%ff", f"https://github.com/{'a' * 40}/herbs",
        f"https://github.com/ada/{'h' * 101}",
    ],
)  # fmt: skip
def test_what_names_no_folder_of_a_repository_is_none(url: str | None) -> None:
    assert parse_github_url(url) is None


@given(st.text())
def test_no_text_is_too_odd_to_be_parsed(text: str) -> None:
    parse_github_url(text)
    found = parse_github_url(f"https://github.com/ada/herbs/tree/{text}")
    assert found is None or (found.repository == "ada/herbs" and ".." not in found.rest)


PARTS = st.lists(
    st.text(
        st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/"), min_size=1, max_size=6
    ).filter(lambda part: part not in {".", ".."} and part.lower() != "skill.md"),
    min_size=1,
    max_size=5,
)


@given(PARTS)
def test_a_folder_that_was_encoded_comes_back(rest: list[str]) -> None:
    encoded = "/".join(quote(part, safe="") for part in rest)
    assert parse_github_url(f"https://github.com/ada/herbs/tree/{encoded}") == tree(*rest)
    assert parse_github_url(f"https://github.com/ada/herbs/tree/{encoded}/SKILL.md/") == tree(*rest)
    assert parse_github_url(f"https://github.com/ada/herbs/blob/{encoded}/SKILL.md") == blob(*rest)


def test_candidates_begin_with_the_shortest_ref() -> None:
    assert tree("fix", "mint", "skills").candidates() == [
        ("fix", "mint/skills"),
        ("fix/mint", "skills"),
        ("fix/mint/skills", ""),
    ]
    assert ROOT.candidates() == []


@given(PARTS)
def test_every_candidate_joins_to_what_the_url_said(rest: list[str]) -> None:
    for ref, folder in tree(*rest).candidates():
        assert "/".join(part for part in (ref, folder) if part) == "/".join(rest)


@pytest.mark.parametrize(
    ("refs", "expected"),
    [
        (["main", "fix"], ("fix", "mint/skills")),
        (["fix", "fix/mint", "fix/mint/ski"], ("fix/mint", "skills")),
        (["fix/mint/skills", "fix"], ("fix/mint/skills", "")),
        (["Fix", "main", "fix/min"], None),
        ([], None),
    ],
)
def test_the_longest_ref_wins(refs: list[str], expected: tuple[str, str] | None) -> None:
    assert split_by_refs(("fix", "mint", "skills"), refs) == expected


@given(PARTS, st.integers(min_value=1), st.sets(st.text(max_size=4)))
def test_a_ref_that_exists_is_found_or_a_longer_one(rest: list[str], length: int, others: set[str]) -> None:
    ref = "/".join(rest[: 1 + length % len(rest)])
    found = split_by_refs(tuple(rest), {ref, *others})
    assert found is not None
    assert len(found[0]) >= len(ref)
    assert found in tree(*rest).candidates()
