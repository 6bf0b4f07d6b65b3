"""The forge's API on loopback: payloads, refs, renames, refusals, limits and ETags."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest

from tests.support.marketplace.asking import Got, ask
from tests.support.marketplace.objects import Submodule, link
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

BREAD = b"---\nname: bread\ndescription: Bakes a loaf\n---\n# Bread\n"
REPO = "/repos/ann/bakery"


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


def test_a_repository_says_who_it_is(market: Marketplace, bakery: Repository) -> None:
    told = ask(market, "api", "/repos/ANN/Bakery").json()

    fields = ("id", "full_name", "default_branch", "stargazers_count", "size")
    assert [told[field] for field in fields] == [42, "ann/bakery", "main", 7, 0]
    assert told["license"]["spdx_id"] == "MIT"
    bakery.licence, bakery.announced_kb = None, 12
    told = tell(market).json()
    assert (told["license"], told["size"]) == (None, 12)


@pytest.mark.parametrize(
    "ref", ["main", "heads/main", "HEAD", "feature/x", "feature%2Fx", "v1.0", "sha", "short"]
)
def test_a_commit_is_found_by_any_kind_of_ref(market: Marketplace, bakery: Repository, ref: str) -> None:
    bakery.branch("feature/x")
    bakery.tag("v1.0")
    head = bakery.head
    path = {"sha": head.sha, "short": head.sha[:7]}.get(ref, ref)

    told = tell(market, f"/commits/{path}").json()

    assert (told["sha"], told["commit"]["tree"]["sha"]) == (head.sha, head.tree.sha)


def test_the_id_alone_is_told_on_request(market: Marketplace, bakery: Repository) -> None:
    got = tell(market, "/commits/main", Accept="application/vnd.github.sha")

    assert got.body.decode() == bakery.head.sha


@pytest.mark.parametrize("path", ["/commits/none", "/git/trees/none", "/contents/none", "/nonsense"])
def test_what_is_not_there_is_refused(market: Marketplace, path: str) -> None:
    assert tell(market, path).status == (422 if path == "/commits/none" else 404)
    assert ask(market, "api", f"/repos/ann/nothing{path}").status == 404


def test_an_empty_repository_has_no_commit(market: Marketplace) -> None:
    market.world.repository("ann/empty")

    assert ask(market, "api", "/repos/ann/empty/commits/main").status == 409


def test_a_tree_lists_modes_sizes_and_ids(market: Marketplace, bakery: Repository) -> None:
    head = bakery.commit({"now": link("bread/run.sh"), "lib": Submodule("ab" * 20)})

    whole = tell(market, f"/git/trees/{head.sha}?recursive=1").json()
    top = tell(market, "/git/trees/main").json()

    entries = {entry["path"]: entry for entry in whole["tree"]}
    assert list(entries) == ["README.md", "bread", "bread/SKILL.md", "bread/run.sh", "lib", "now"]
    assert whole["sha"] == top["sha"] == head.tree.sha
    assert whole["truncated"] is False
    assert [entry["path"] for entry in top["tree"]] == ["README.md", "bread", "lib", "now"]
    assert [entries[p]["mode"] for p in ("README.md", "bread", "lib", "now")] == [
        "100644",
        "040000",
        "160000",
        "120000",
    ]
    assert entries["bread/SKILL.md"]["size"] == len(BREAD)
    assert "size" not in entries["bread"]
    assert entries["lib"]["type"] == "commit"
    below = tell(market, f"/git/trees/{entries['bread']['sha']}").json()
    assert [entry["path"] for entry in below["tree"]] == ["SKILL.md", "run.sh"]


def test_a_large_tree_is_truncated_but_its_folders_are_not(market: Marketplace) -> None:
    market.world.github.tree_entries = 3

    cut = tell(market, "/git/trees/main?recursive=1").json()

    assert (len(cut["tree"]), cut["truncated"]) == (3, True)
    assert tell(market, "/git/trees/main").json()["truncated"] is False


def test_refs_are_matched_by_their_beginning(market: Marketplace, bakery: Repository) -> None:
    other = bakery.commit({"x": b"x"}, branch="feature/x")
    bakery.branch("feature/xy")
    bakery.tag("v1.0")

    heads = tell(market, "/git/matching-refs/heads/feature/x").json()
    tags = tell(market, "/git/matching-refs/tags/v").json()

    assert [ref["ref"] for ref in heads] == ["refs/heads/feature/x", "refs/heads/feature/xy"]
    assert heads[0]["object"]["sha"] == other.sha != heads[1]["object"]["sha"]
    assert [ref["ref"] for ref in tags] == ["refs/tags/v1.0"]
    assert tell(market, "/git/matching-refs/heads/none").json() == []


def test_a_zipball_leads_to_the_archive_host(market: Marketplace, bakery: Repository) -> None:
    bakery.branch("feature/x")

    got = tell(market, "/zipball/feature/x")

    assert got.status == 302
    assert got.headers["location"] == f"{market.url('archive')}/ann/bakery/legacy.zip/feature/x"


def test_contents_come_raw_or_wrapped_or_as_a_listing(market: Marketplace) -> None:
    raw = tell(market, "/contents/bread/SKILL.md?ref=main", Accept="application/vnd.github.raw+json")
    wrapped = tell(market, "/contents/bread/SKILL.md").json()
    listing = tell(market, "/contents/bread").json()

    assert raw.body == base64.b64decode(wrapped["content"]) == BREAD
    assert [entry["path"] for entry in listing] == ["bread/SKILL.md", "bread/run.sh"]


def test_an_old_name_leads_to_the_number_which_leads_to_the_new_one(
    market: Marketplace, bakery: Repository
) -> None:
    bakery.rename("ann/oven")

    for rest in ("", "/commits/main"):
        moved = tell(market, rest)
        assert moved.status == 301
        assert moved.headers["location"] == f"{market.url('api')}/repositories/42{rest}"
        assert ask(market, "api", f"/repositories/42{rest}").status == 200
    assert ask(market, "api", "/repositories/42").json()["full_name"] == "ann/oven"
    assert ask(market, "api", "/repositories/43").status == 404
    assert market.count(repository="ann/oven") == 5


def test_a_name_taken_again_belongs_to_its_new_owner(market: Marketplace, bakery: Repository) -> None:
    bakery.rename("ann/oven")
    market.world.repository("ann/bakery", repo_id=77)

    assert tell(market).json()["id"] == 77


@pytest.mark.parametrize(
    ("befall", "status", "word"),
    [
        (Repository.make_private, 404, b"Not Found"),
        (Repository.delete, 404, b"Not Found"),
        (Repository.deny, 403, b"Forbidden"),
        (Repository.dmca, 403, b'"reason": "dmca"'),
        (Repository.block_legally, 451, b'"block"'),
    ],
)
def test_what_befalls_a_repository_shows_on_every_route_until_it_is_restored(
    market: Marketplace, bakery: Repository, befall: Callable[[Repository], None], status: int, word: bytes
) -> None:
    routes = ["", "/commits/main", "/git/trees/main", "/git/matching-refs/heads/", "/zipball/main"]
    befall(bakery)

    refused = [tell(market, route) for route in routes]
    files = [
        ask(market, "archive", f"/ann/bakery/zip/{bakery.head.sha}"),
        ask(market, "raw", "/ann/bakery/main/README.md"),
    ]
    bakery.restore()

    assert {got.status for got in [*refused, *files]} == {status}
    assert all(word in got.body for got in refused)
    assert (b"DMCA" in files[0].body) == (befall is Repository.dmca)
    assert tell(market).status == 200


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


def test_what_is_not_modified_is_free_for_those_with_a_token_alone(market: Marketplace) -> None:
    used: dict[str, list[str]] = {}
    for who in ("Bearer t-1", ""):
        tag = tell(market, Authorization=who).headers["etag"]
        got = [tell(market, Authorization=who, If_None_Match=tag) for _ in range(2)]
        assert {answer.status for answer in got} == {304}
        used[who] = [answer.headers["x-ratelimit-used"] for answer in got]

    assert used == {"Bearer t-1": ["1", "1"], "": ["2", "3"]}


def test_a_wrong_token_is_refused_where_tokens_are_known(market: Marketplace) -> None:
    market.world.github.tokens = frozenset({"t-1"})

    assert tell(market, Authorization="token t-1").status == 200
    assert tell(market, Authorization="Bearer t-2").status == 401


def test_a_mirror_may_lack_the_route_for_commits(market: Marketplace, bakery: Repository) -> None:
    market.world.github.commits_route = False

    assert tell(market, "/commits/main").status == 404
    assert tell(market, "/git/trees/main").json()["sha"] == bakery.head.tree.sha
