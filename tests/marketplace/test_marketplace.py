"""The marketplace on loopback: what the tests of the crawl rely on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.marketplace.repository import Repository, executable, link
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

BREAD = b"---\nname: bread\ndescription: Bakes a loaf\n---\n# Bread\n"


def git(folder: Path, *arguments: str) -> str:
    who = {"NAME": "Market Gardener", "EMAIL": "gardener@example.org", "DATE": "1770000000 +0000"}
    names = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_trees_and_commits_have_the_ids_that_git_gives_them(tmp_path: Path) -> None:
    repository = World().repository("ann/bakery")
    first = repository.commit(
        {"README.md": b"# Hi\n", "a/b.md": b"b", "a.md": b"a", "a-b/c": b""}, at=1_770_000_000
    )
    second = repository.commit(
        {"run.sh": executable(b"ls\n"), "now": link("a/b.md"), "a.md": None}, at=1_770_000_000
    )
    git(tmp_path, "init", "-q")
    ids = []
    for commit in (first, second):
        git(tmp_path, "rm", "-rfq", "--ignore-unmatch", ".")
        for path, blob in commit.files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            if blob.mode == "120000":
                (tmp_path / path).symlink_to(blob.content.decode())
            else:
                (tmp_path / path).write_bytes(blob.content)
                (tmp_path / path).chmod(0o755 if blob.mode == "100755" else 0o644)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "Tend the garden")
        ids.append((git(tmp_path, "rev-parse", "HEAD"), git(tmp_path, "rev-parse", "HEAD^{tree}")))
    assert ids == [(commit.sha, commit.tree.sha) for commit in (first, second)]


class Clock:
    """Seconds since 1970, that a test moves."""

    at = 1_770_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bakery(clock: Clock) -> Repository:
    repository = World(now=clock).repository("ann/bakery", repo_id=42, stars=7)
    repository.commit({"bread/SKILL.md": BREAD, "bread/run.sh": b"ls\n", "README.md": b"# Hi\n"})
    return repository


@pytest.fixture
def market(bakery: Repository, clock: Clock) -> Iterator[Marketplace]:
    world = World(now=clock)
    world.repositories.append(bakery)
    world.github.anonymous_limit = 1_000
    with Marketplace(world) as served:
        yield served


@dataclass(frozen=True, slots=True)
class Got:
    status: int
    headers: dict[str, str]
    body: bytes


def tell(market: Marketplace, rest: str = "", **headers: str) -> Got:
    """Send a GET to the API; in header names `_` stands for `-`."""
    with closing(HTTPConnection(urlsplit(market.url("api")).netloc, timeout=30)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", f"/repos/ann/bakery{rest}", headers=named)
        answer = connection.getresponse()
        return Got(answer.status, {name.lower(): v for name, v in answer.getheaders()}, answer.read())


def test_an_etag_belongs_to_a_url_and_a_credential(market: Marketplace, bakery: Repository) -> None:
    mine = {"Authorization": "Bearer t-1"}
    tag = tell(market, **mine).headers["etag"]
    assert tell(market, **mine, If_None_Match=tag).status == 304
    assert tell(market, If_None_Match=tag).status == 200
    assert tell(market, Authorization="Bearer t-2", If_None_Match=tag).status == 200
    assert tell(market, "/commits/main", **mine, If_None_Match=tag).status == 200
    bakery.stars += 1
    assert tell(market, **mine, If_None_Match=tag).status == 200


def test_limits_count_down_and_refuse_until_the_hour_is_over(market: Marketplace, clock: Clock) -> None:
    market.world.github.anonymous_limit = 2
    left = [tell(market).headers["x-ratelimit-remaining"] for _ in range(2)]
    refused = tell(market)
    with_token = tell(market, Authorization="Bearer t-1")
    assert left == ["1", "0"]
    assert (refused.status, refused.headers["x-ratelimit-remaining"]) == (403, "0")
    assert "rate limit" in refused.body.decode()
    assert with_token.headers["x-ratelimit-remaining"] == "4999"
    clock.at = float(refused.headers["x-ratelimit-reset"])
    again = tell(market)
    assert (again.status, again.headers["x-ratelimit-used"]) == (200, "1")
