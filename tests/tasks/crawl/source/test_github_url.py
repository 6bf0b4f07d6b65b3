from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.crawl.source.identity import GithubUrl, parse_github_url, split_by_refs

ROOT = GithubUrl("ada", "herbs")


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
        None,
        "",
        "mint",
        "github.com/ada/herbs",
        "git@github.com:ada/herbs.git",
        "ftp://github.com/ada/herbs",
        "https://gist.github.com/ada/herbs",
        "https://raw.githubusercontent.com/ada/herbs/main/SKILL.md",
        "https://github.com.example.org/ada/herbs",
        "https://github.com@example.org/ada/herbs",
        "https://ada:secret@github.com/ada/herbs",
        "https://github.com:8443/ada/herbs",
        "https://github.com:x/ada/herbs",
        "https://[github.com/ada/herbs",
        "https://github.com",
        "https://github.com/ada",
        "https://github.com/topics/herbs",
        "https://github.com/ada/..",
        "https://github.com/ada/%2e%2e",
        "https://github.com/-ada/herbs",
        "https://github.com/a.da/herbs",
        "https://github.com/ada/her bs",
        "https://github.com/ada/herbs/tree",
        "https://github.com/ada/herbs/blob/main",
        "https://github.com/ada/herbs/issues/1",
        "https://github.com/ada/herbs/tree/main/../../other",
        "https://github.com/ada/herbs/tree/main/%2e%2e/x",
        "https://github.com/ada/herbs/tree/main/%00",
        "https://github.com/ada/herbs/tree/main/%ff",
        f"https://github.com/{'a' * 40}/herbs",
        f"https://github.com/ada/{'h' * 101}",
    ],
)
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
