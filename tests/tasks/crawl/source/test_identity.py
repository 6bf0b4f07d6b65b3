from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import WrongInput
from tasks.crawl.source.identity import (
    author_of,
    doc_key,
    hide_credentials,
    make_doc_id,
    public_url,
    repository_name,
    skill_url,
)


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


@settings(deadline=None)
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
