from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from storage.root import Root
from tasks.crawl.github.api import Commit, GitHub, Metadata
from tasks.crawl.github.archive import Archive
from tasks.crawl.http.responses import HttpTerminal, HttpTransient
from tasks.crawl.http.settings import Secret
from tasks.crawl.source.bundle import SourceEntry
from tests.support.crawl.crawling import settings_of
from tests.support.crawl.loopback_host import http_of, impatient
from tests.support.marketplace.messages import Fault
from tests.support.marketplace.repository import Fate, Repository, Submodule, link
from tests.support.marketplace.server import Marketplace

T = TypeVar("T")
MINT = b"---\nname: mint\ndescription: Grows mint.\n---\n# Mint\nCut it back in June.\n"
TOKEN = Secret("ghp_basil")


@pytest.fixture
def herbs(market: Marketplace) -> Repository:
    repository = market.world.repository("ada/herbs", stars=7, licence="Apache-2.0")
    repository.commit(
        {"skills/mint/SKILL.md": MINT, "skills/mint/notes/über #1.txt": b"shade", "LICENSE": b"Free."}
    )
    return repository


class Asker:
    """Puts questions to a marketplace, each through a client of its own."""

    def __init__(self, market: Marketplace, root: Path) -> None:
        self._market, self._root = market, root
        hosts = frozenset({market.url("archive").removeprefix("http://")})
        self._polite = impatient(redirect_hosts=hosts)

    def __call__(
        self, question: Callable[[GitHub], Awaitable[T]], *, token: Secret | None = TOKEN,
        archive_bytes: int = 50_000_000, tree_requests: int = 50,
    ) -> T:  # fmt: skip
        async def answer() -> T:
            async with http_of(Root(self._root), self._polite) as http:
                given = settings_of(self._market.environment(), archive_bytes=archive_bytes)
                return await question(GitHub(http, token, given, tree_requests=tree_requests))

        return asyncio.run(answer())


@pytest.fixture
def ask(market: Marketplace, tmp_path: Path) -> Asker:
    return Asker(market, tmp_path / "root")


def failure(ask: Asker, question: Callable[[GitHub], Awaitable[object]]) -> HttpTerminal:
    with pytest.raises(HttpTerminal) as failed:
        ask(question)
    return failed.value


@pytest.mark.parametrize("ref", ["main", "HEAD", "v1", "spring/early", "heads/spring/early"])
def test_a_ref_stands_for_a_commit_and_its_tree(herbs: Repository, ask: Asker, ref: str) -> None:
    herbs.tag("v1")
    herbs.branch("spring/early")
    found = ask(lambda github: github.commit("ada/herbs", ref))
    assert isinstance(found, Commit)
    assert (found.sha, found.tree) == (herbs.head.sha, herbs.head.tree.sha)


def test_a_commit_is_not_modified_until_it_is(market: Marketplace, herbs: Repository, ask: Asker) -> None:
    first = ask(lambda github: github.commit("ada/herbs", "main"))
    assert isinstance(first, Commit)
    assert ask(lambda github: github.commit("ada/herbs", "main", first.etag)) is None
    herbs.commit({"skills/sage/SKILL.md": MINT})
    later = ask(lambda github: github.commit("ada/herbs", "main", first.etag))
    assert isinstance(later, Commit)
    assert later.sha == herbs.head.sha != first.sha
    assert market.count("api") == 3


def test_a_mirror_without_commits_is_asked_for_its_tree_and_from_then_on_only_for_that(
    market: Marketplace, herbs: Repository, ask: Asker
) -> None:
    market.world.github.commits_route = False
    tree = herbs.head.tree.sha

    async def twice(github: GitHub) -> list[Commit | None]:
        first = await github.commit("ada/herbs", "main")
        assert isinstance(first, Commit)
        return [first, await github.commit("ada/herbs", "main", first.etag)]

    first, second = ask(twice)
    assert isinstance(first, Commit)
    assert (first.sha, first.tree, second) == (tree, tree, None)
    assert (market.count("api", "commit"), market.count("api", "tree")) == (1, 2)


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        ("private", "missing"), ("deleted", "missing"), ("denied", "denied"), ("dmca", "withdrawn"),
        ("blocked", "withdrawn"),
    ],
)  # fmt: skip
def test_what_befell_it_is_told(
    herbs: Repository, ask: Asker, tmp_path: Path, fate: Fate, reason: str
) -> None:
    sha = herbs.head.sha
    herbs.fate = fate
    questions: list[Callable[[GitHub], Awaitable[object]]] = [
        lambda github: github.commit("ada/herbs", "main"),
        lambda github: github.metadata("ada/herbs"),
        lambda github: github.tree("ada/herbs", sha),
        lambda github: github.refs("ada/herbs", ""),
        lambda github: github.raw("ada/herbs", sha, "LICENSE", 99),
        lambda github: github.archive("ada/herbs", sha, "main", tmp_path / "a.zip"),
    ]
    assert [failure(ask, question).reason for question in questions] == [reason] * 6
    assert not list(tmp_path.glob("*.zip"))


def test_what_is_missing_is_told_apart(market: Marketplace, herbs: Repository, ask: Asker) -> None:
    missing = failure(ask, lambda github: github.commit("ada/herbs", "winter"))
    assert (missing.reason, missing.status) == ("missing-ref", 422)
    assert "'winter'" in missing.detail
    market.world.repository("ada/empty")
    assert failure(ask, lambda github: github.commit("ada/empty", "HEAD")).reason == "empty"

    async def both(github: GitHub) -> None:  # a forge that has told a commit is not asked for a tree
        await github.commit("ada/herbs", "main")
        await github.commit("ada/weeds", "main")

    market.clear_requests()
    assert failure(ask, both).reason == "missing"
    assert (market.count("api", "commit"), market.count("api", "tree")) == (2, 0)
    market.world.github.anonymous_limit = 0
    with pytest.raises(HttpTransient):
        ask(lambda github: github.commit("ada/herbs", "main"), token=None)


def test_metadata_follow_a_rename(herbs: Repository, ask: Asker) -> None:
    before = ask(lambda github: github.metadata("Ada/Herbs"))
    assert before == Metadata(str(herbs.repo_id), "ada/herbs", 7, "Apache-2.0")
    herbs.rename("ada/garden")
    assert ask(lambda github: github.metadata("ada/herbs")) == replace(before, full_name="ada/garden")
    for licence in (None, "NOASSERTION"):  # which GitHub cannot name
        herbs.licence = licence
        assert ask(lambda github: github.metadata("ada/herbs")).licence is None


@pytest.fixture
def orchard(market: Marketplace) -> Repository:
    repository = market.world.repository("ada/orchard")
    files = {f"skills/{kind}/{n}/SKILL.md": MINT for kind in ("apple", "pear") for n in range(4)}
    odd = {"more": link("skills/apple"), "vendored": Submodule("0f" * 20)}
    repository.commit({**files, **odd, "README.md": b"Fruit."})
    return repository


@pytest.mark.parametrize(("most", "requests"), [(100_000, 1), (12, 6), (4, 16)])
def test_a_tree_is_whole_however_much_an_answer_holds(
    market: Marketplace, orchard: Repository, ask: Asker, most: int, requests: int
) -> None:
    market.world.github.tree_entries = most
    tree = ask(lambda github: github.tree("ada/orchard", orchard.head.tree.sha))
    nodes = dict(orchard.head.tree.walk())
    kinds = {"more": "link", "vendored": "submodule"}
    assert sorted(tree.entries, key=lambda entry: entry.path) == [
        SourceEntry(path, kinds.get(path, "file"), node.sha, size=len(getattr(node, "content", b"")))  # type: ignore[arg-type]
        for path, node in sorted(nodes.items())
        if node.kind != "tree"
    ]
    folders = {path: node.sha for path, node in nodes.items() if node.kind == "tree"}
    assert tree.folders == {"": orchard.head.tree.sha, **folders}
    assert market.count("api", "tree") == requests
    for too_few, allowed in ((4, 14), (3, 50)):  # what cannot be had whole is not had at all
        market.world.github.tree_entries = too_few
        with pytest.raises(HttpTerminal) as failed:
            ask(lambda github: github.tree("ada/orchard", "main"), tree_requests=allowed)
        assert failed.value.reason == "too-large"


def test_refs_are_branches_and_tags_with_a_prefix(herbs: Repository, ask: Asker) -> None:
    for branch in ("spring", "spring/early", "summer"):
        herbs.branch(branch)
    herbs.tag("spring#1")
    assert ask(lambda github: github.refs("ada/herbs", "spring")) == ["spring", "spring/early", "spring#1"]
    assert ask(lambda github: github.refs("ada/herbs", "spring#")) == ["spring#1"]


def test_an_archive_is_had_without_the_api(
    market: Marketplace, herbs: Repository, ask: Asker, tmp_path: Path
) -> None:
    target = tmp_path / "herbs.zip"
    assert ask(lambda github: github.archive("ada/herbs", herbs.head.sha, "main", target)) == target
    with Archive(target) as archive:
        texts = {entry.path: archive.read(entry, entry.size).head for entry in archive.entries()}
    assert texts == {path: blob.content for path, blob in herbs.head.files.items()}
    assert (market.count("archive"), market.count("api")) == (1, 0)
    market.clear_requests()
    assert ask(lambda github: github.archive("ada/herbs", "0f" * 20, "main", target)) == target
    with Archive(target) as archive:  # of an unknown commit it is had by ref
        assert {entry.path for entry in archive.entries()} == herbs.head.files.keys()
    assert [request.status for request in market.requests] == [404, 200]


def test_where_the_archive_host_knows_nothing_the_api_leads_to_it_without_the_token(
    market: Marketplace, herbs: Repository, ask: Asker, tmp_path: Path
) -> None:
    market.world.github.files_follow_renames = False
    herbs.branch("spring/early")
    herbs.rename("ada/garden")
    path = ask(lambda github: github.archive("ada/herbs", herbs.head.sha, "spring/early", tmp_path / "a.zip"))
    with Archive(path) as archive:
        assert archive.root == f"ada-garden-{herbs.head.sha[:7]}"
    sent = [(request.service, "authorization" in request.headers) for request in market.requests]
    assert sent == [("archive", False)] * 2 + [("api", True)] * 2 + [("archive", False)]


def test_an_archive_over_the_limit_leaves_nothing(herbs: Repository, ask: Asker, tmp_path: Path) -> None:
    herbs.pad_to(30_000)
    with pytest.raises(HttpTerminal) as failed:
        ask(
            lambda github: github.archive("ada/herbs", herbs.head.sha, "main", tmp_path / "a.zip"),
            archive_bytes=20_000,
        )
    assert failed.value.reason == "too-large"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_raw_file_is_had_without_the_token(market: Marketplace, herbs: Repository, ask: Asker) -> None:
    path = "skills/mint/notes/über #1.txt"
    assert ask(lambda github: github.raw("ada/herbs", herbs.head.sha, path, 5)) == b"shade"
    assert failure(ask, lambda github: github.raw("ada/herbs", herbs.head.sha, path, 4)).reason == "too-large"
    assert {(r.service, "authorization" in r.headers) for r in market.requests} == {("raw", False)}


@pytest.mark.parametrize(
    ("lacking", "question"),
    [
        ("sha", lambda github: github.commit("ada/herbs", "main")),
        ("commit", lambda github: github.commit("ada/herbs", "main")),
        ("id", lambda github: github.metadata("ada/herbs")),
        ("full_name", lambda github: github.metadata("ada/herbs")),
        ("truncated", lambda github: github.tree("ada/herbs", "main")),
        ("mode", lambda github: github.tree("ada/herbs", "main")),
        ("ref", lambda github: github.refs("ada/herbs", "main")),
    ],
)
def test_an_answer_without_a_field_is_refused_by_its_name(
    market: Marketplace, herbs: Repository, ask: Asker, lacking: str,
    question: Callable[[GitHub], Awaitable[object]],
) -> None:  # fmt: skip
    market.faults.script("api:*", [Fault("missing-fields", fields=(lacking,))])
    failed = failure(ask, question)
    assert failed.reason == "shape"
    assert lacking in failed.detail


def test_a_list_for_an_object_or_the_reverse_is_refused(
    market: Marketplace, herbs: Repository, ask: Asker
) -> None:
    api = market.url("api")
    for asked, answered in (
        ("git/matching-refs/*", "git/trees/main"),
        ("commits/main*", "git/matching-refs/heads"),
    ):
        away = Fault("redirect", location=f"{api}/repos/ada/herbs/{answered}")
        market.faults.script(f"api:/repos/ada/herbs/{asked}", [away])
    assert failure(ask, lambda github: github.refs("ada/herbs", "")).reason == "shape"
    assert failure(ask, lambda github: github.commit("ada/herbs", "main")).reason == "shape"
