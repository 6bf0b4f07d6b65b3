"""The identity of a skill by the URL of its repository, and credentials in what a source says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import WrongInput
from storage.schemas import BundledFile, Dropped, FileContent, Finding, LicenceFile, Listing, RawDocument
from tasks.crawl.source.base import Gone, Missed, Unchanged
from tasks.crawl.source.credentials import without_credentials
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
from tests.support.crawl.crawling import Crawler, settings_of
from tests.support.roots.nights import raw

ROOT = GithubUrl("ada", "herbs")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/Ada/Herbs.git", "Ada/Herbs"), ("https://github.com/ada/herbs/", "ada/herbs"),
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
        ("file:///srv/herbs.git", "local/herbs"), ("file:///srv/herbs/.git", "local/herbs"),
        ("file:///srv/herbs/", "local/herbs"), ("file:///srv/why%3F.git", "local/why?"),
        ("file:///", "local/root"),
    ],
)  # fmt: skip
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
    assert "s3/cret" not in hide_credentials("denied: s3/cret", "https://me:s3%2Fcret@code.example/a")


@pytest.mark.parametrize("url", ["https://me:se/cret@h.example/a", "https://me:sec@x:ret@h:pw/a", "secret"])
def test_what_is_no_url_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(WrongInput) as caught:
        repository_name(url)
    assert "cret@" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_doc_id_ends_with_the_folder_and_is_compared_case_folded() -> None:
    assert make_doc_id("ada/herbs", "") == "ada/herbs"
    assert make_doc_id("ada/herbs", "skills/Mint") == "ada/herbs/skills/Mint"
    assert doc_key("Ada/STRASSE") == doc_key("ada/straße")


def test_the_author_is_the_owner() -> None:
    for url in ("https://github.com/ada/herbs", "git@code.example:ada/herbs.git"):
        assert author_of(url) == "ada"
    assert author_of("https://code.example/herbs") is author_of("file:///srv/ada/herbs") is None


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


@given(PARTS)
def test_every_candidate_joins_to_what_the_url_said_the_shortest_ref_first(rest: list[str]) -> None:
    found = tree(*rest).candidates()
    assert [len(ref) for ref, _ in found] == sorted(len(ref) for ref, _ in found)
    assert (len(found), ROOT.candidates()) == (len(rest), [])
    for ref, folder in found:
        assert "/".join(part for part in (ref, folder) if part) == "/".join(rest)


def test_the_longest_ref_wins() -> None:
    for refs, expected in (
        (["main", "fix"], ("fix", "mint/skills")),
        (["fix", "fix/mint", "fix/mint/ski"], ("fix/mint", "skills")),
        (["fix/mint/skills", "fix"], ("fix/mint/skills", "")),
        (["Fix", "main", "fix/min"], None),
        ([], None),
    ):
        assert split_by_refs(("fix", "mint", "skills"), refs) == expected


@given(PARTS, st.integers(min_value=1), st.sets(st.text(max_size=4)))
def test_a_ref_that_exists_is_found_or_a_longer_one(rest: list[str], length: int, others: set[str]) -> None:
    ref = "/".join(rest[: 1 + length % len(rest)])
    found = split_by_refs(tuple(rest), {ref, *others})
    assert found is not None
    assert len(found[0]) >= len(ref)
    assert found in tree(*rest).candidates()


# Spelled in two parts, so that nothing takes this file for one that leaks.
KEY = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
OTHER = "ghp_" + "zB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"https://ann:{KEY}@github.com/x/tools?token={KEY}", "https://github.com/x/tools?token=[redacted]"),
        ("https://hunter22@host.org/a?page=2", "https://host.org/a?page=2"),
        ("https://a@b:c@d@host.org/a@v1", "https://host.org/a@v1"),
        ("https://host.org/a?page=2&X-Amz-Signature=0123456789ab#top", "https://host.org/a?page=2&X-Amz-Signature=[redacted]#top"),
        ("https://host.org:8080/a@v1?keyword=saffron-milk", "https://host.org:8080/a@v1?keyword=saffron-milk"),
        ("ssh://git@host.org/x/tools", "ssh://git@host.org/x/tools"),
        (f"see {KEY}", "see [redacted:github-token]"),
    ],
)  # fmt: skip
def test_a_text_of_a_source_holds_no_credential(text: str, clean: str) -> None:
    listing = Listing(source="s", source_id="1", url=text, description=text)
    assert without_credentials(listing) == replace(listing, url=clean, description=clean)


@given(
    st.sampled_from(
        [
            replace(
                raw(f"x/{KEY}", b"text"), repo=f"x/{KEY}", ref=KEY, path=f"{KEY}/SKILL.md", url=f"https://{KEY}@h/",
                author=KEY, category=KEY, tags=("a", KEY), files=(BundledFile(f"a/{KEY}", 1, "0"),),
                contents=(FileContent(f"a/{KEY}", b"1"),), licence_files=(LicenceFile(KEY, "0", KEY),),
                findings=(Finding("bundle.symlink", "warning", f"{KEY} is a link"),),
            ),
            Listing(source="s", source_id=KEY, name=KEY, description=KEY, author=KEY, url=KEY, tags=(KEY,)),
            Dropped(KEY, "s", "unreadable", f"{KEY}: denied", lost_to=KEY),
            Unchanged((KEY, "a")), Missed((KEY,), "timeout", KEY), Gone((KEY,), "retired", KEY),
        ]
    )
)  # fmt: skip
def test_no_field_of_a_record_holds_it_and_a_second_pass_changes_nothing(record: object) -> None:
    clean = without_credentials(record)
    assert KEY not in repr(clean)
    assert without_credentials(clean) is clean
    if isinstance(clean, RawDocument):
        assert clean.files is not None
        assert clean.files[0].path == clean.contents[0].path


def test_names_that_differ_in_their_keys_alone_stay_apart() -> None:
    first, second = without_credentials(Unchanged((f"x/{KEY}/a", f"x/{OTHER}/a"))).doc_ids
    assert first != second
    assert first.startswith("x/[redacted:github-token]~")
    assert first.endswith("/a")


@pytest.mark.parametrize("record", [Unchanged(("x/tools", "x/keys/token")), raw("x/tools/a", b"text")])
def test_a_record_without_one_is_the_same_record(record: object) -> None:
    assert without_credentials(record) is record


def test_a_table_with_a_login_leaves_it_nowhere_under_the_root(tmp_path: Path) -> None:
    row = {
        "id": f"x/tools/{KEY}", "content": "# A tool\n\nUse it well.\n", "path": f"skills/{KEY}/SKILL.md",
        "source_url": f"https://user:{KEY}@github.com/x/tools?token={KEY}", "owner": KEY, "repo": "tools",
    }  # fmt: skip
    pl.DataFrame({name: [value] for name, value in row.items()}).write_parquet(tmp_path / "table.parquet")
    crawler = Crawler(tmp_path / "root", settings_of({}))
    assert crawler.crawl(f"parquet:{tmp_path}/table.parquet").new == 1
    for file in (file for file in crawler.folder.rglob("*") if file.is_file()):
        frame = pl.read_parquet(file) if file.suffix == ".parquet" else None
        held = json.dumps(frame.to_dicts(), default=repr) if frame is not None else file.read_text()
        assert KEY not in held, file
