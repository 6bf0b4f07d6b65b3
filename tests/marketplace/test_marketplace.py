"""The marketplace on loopback: what the tests of the crawl rely on."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.marketplace.asking import Got, ask
from tests.support.marketplace.faults import TRANSIENT, Fault, FaultKind, Faults
from tests.support.marketplace.populate import change, populate
from tests.support.marketplace.repository import (
    Repository,
    executable,
    link,
)
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.paths import PROJECT

BREAD = b"---\nname: bread\ndescription: Bakes a loaf\n---\n# Bread\n"
REPO = "/repos/ann/bakery"


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


def test_a_seed_makes_the_same_world_every_time_and_another_another() -> None:
    worlds = [World(), World(), World()]
    for world, seed in zip(worlds, (7, 7, 8), strict=True):
        populate(world, 30, 90, seed)
    same, again, other = [[repository.head.sha for repository in world.repositories] for world in worlds]
    assert same == again
    assert not set(same) & set(other)


def test_a_change_touches_the_skills_it_names_and_no_others() -> None:
    world = World()
    populate(world, 30, 100)
    before = {(row.full_name, row.folder): row.updated_at for row in world.rows}
    changed = change(world, 0.05)
    newer = [
        f"{row.full_name}/{row.folder}"
        for row in world.rows
        if row.updated_at > before[row.full_name, row.folder]
    ]
    assert sorted(newer) == changed
    assert len(changed) == 5
    assert {row.updated_at for row in world.rows if f"{row.full_name}/{row.folder}" in changed}.isdisjoint(
        before.values()
    )


def drawn(faults: Faults, urls: int, times: int) -> list[list[FaultKind | None]]:
    tries = [[faults.next("api", f"/u{url}", "") for _ in range(times)] for url in range(urls)]
    return [[fault.kind if fault else None for fault in row] for row in tries]


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_a_rate_is_kept_and_a_seed_repeats_itself(rate: float) -> None:
    rows = drawn(Faults(rate, seed=5), 4_000, 1)
    kinds = Counter(kind for (kind,) in rows if kind)
    assert kinds.total() / 4_000 == pytest.approx(rate, abs=0.02)
    assert set(kinds) == set(TRANSIENT)
    assert rows == drawn(Faults(rate, seed=5), 4_000, 1)
    assert rows != drawn(Faults(rate, seed=6), 4_000, 1)


@pytest.mark.parametrize("most", [1, 2])
def test_three_tries_always_suffice(most: int) -> None:
    rows = drawn(Faults(0.9, kinds=["500"], most_in_a_row=most), 50, 30)
    runs = ["".join("x" if kind else " " for kind in row).split() for row in rows]
    assert max(len(run) for row in runs for run in row) == most


class Clock:
    """Seconds since 1970, that a test moves."""

    def __init__(self) -> None:
        self.at = 1_770_000_000.0

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


def tell(market: Marketplace, rest: str = "", **headers: str) -> Got:
    return ask(market, "api", REPO + rest, **headers)


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
    assert "rate limit" in refused.json()["message"]
    assert with_token.headers["x-ratelimit-remaining"] == "4999"
    clock.at = float(refused.headers["x-ratelimit-reset"])
    again = tell(market)
    assert (again.status, again.headers["x-ratelimit-used"]) == (200, "1")


def test_gaps_and_crowds_are_measured(market: Marketplace) -> None:
    assert market.shortest_gap("api") == float("inf")
    market.faults.script("api:/repos/ann/bakery?slow=1", [Fault("hang", seconds=0.3)])
    waiting = threading.Thread(target=ask, args=(market, "api", f"{REPO}?slow=1"))
    waiting.start()
    while not market.count("api"):
        time.sleep(0.01)
    ask(market, "api", REPO)
    waiting.join()
    ask(market, "api", REPO)
    starts = [request.at for request in market.requests]
    assert market.shortest_gap("api") == min(starts[1] - starts[0], starts[2] - starts[1])
    assert market.log.most_at_once("api") == 2
    assert market.log.most_within("api", 60) == 3
    assert market.log.most_within("api", 1e-9) == 1
    assert market.log.most_at_once("raw") == market.log.most_within("raw", 60) == 0


def test_the_command_prints_settings_and_serves_them() -> None:
    command = [sys.executable, "-m", "tests.support.marketplace", "--repositories", "2", "--skills", "3"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as served:
        assert served.stdout is not None
        assert served.stderr is not None
        try:
            lines = [served.stdout.readline().strip() for _ in range(5)]
            urls = dict(line.split("=", 1) for line in lines)
            connection = http.client.HTTPConnection(urls["SKILLERY_SKILLSMP_URL"].removeprefix("http://"))
            connection.request("GET", "/api/skills")
            answer = connection.getresponse()
            listing = answer.read()
            connection.close()
        finally:
            served.send_signal(2)
        assert served.stderr.read() == ""
    assert listing.count(b'"githubUrl"') == 3
    assert served.returncode == 0
