"""Readings that were killed, and changes that were taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from tasks.crawl import raw_parts
from tasks.crawl.collect import collect, collect_some
from tasks.crawl.github.source import RepositorySource
from tasks.crawl.mcp.awesome import AwesomeListSource
from tasks.crawl.refresh import Target, open_part
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.source_list import list_sources
from tests.support.crawl.crawling import Crawler, grows
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.roots.nights import HandSource, Killed, Nights, dying_at, skill

HERBS = ("basil", "chard", "dill", "endive", "fennel")
DILL = "ann/garden/beds/dill"
LIST = "awesome:https://raw.githubusercontent.com/ann/lists/main/README.md"
ENTRY = "- [ann/kettle](https://github.com/ann/kettle) - {}\n"

Dies = Callable[[str], None]


def test_a_crawl_killed_wherever_it_writes_ends_as_an_undisturbed_one_and_fetches_no_archive_twice(
    garden: Repository, crawler: Crawler, market: Marketplace
) -> None:
    for step in count():
        with suppress(Killed), dying_at(step):
            assert crawler.crawl().state == "complete"
            break
    assert step > 4
    assert crawler.held() == {f"ann/garden/beds/{herb}": grows(herb) for herb in HERBS}
    assert market.count(kind="archive") == 1
    assert not list((crawler.folder / "state/crawl").rglob("*.zip"))


class Died(BaseException):
    """What a kill is to a process."""


@pytest.fixture
def dies(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> Dies:
    """Crawls a source until it would be told, for the first time, that a text it changed is on disk."""

    def crawl(spec: str) -> None:
        before = crawler.held()

        def die(_: object) -> None:
            if crawler.held() != before:
                raise Died

        with monkeypatch.context() as patched:
            for source in (RepositorySource, AwesomeListSource):
                patched.setattr(source, "checkpoint", die)
            with pytest.raises(Died):
                crawler.crawl(spec)

    return crawl


def a_week(crawler: Crawler, spec: str) -> dict[str, bytes | None]:
    """Return what is held after nights in which every repository was due."""
    for _ in range(3):
        crawler.crawl(spec, days=8)
    return crawler.held()


@pytest.fixture
def kettles(world: World) -> Repository:
    repository = world.repository("ann/lists")
    repository.commit({"README.md": ENTRY.format("Boils water").encode()})
    return repository


def test_a_change_that_was_taken_back_does_not_stay(garden: Repository, crawler: Crawler, dies: Dies) -> None:
    crawler.crawl(spec := "github:ann/garden", days=8)
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Drown it.")})
    dies(spec)
    assert crawler.held()[DILL] == grows("dill", "Drown it.")
    garden.commit({"beds/dill/SKILL.md": grows("dill")})
    assert a_week(crawler, spec)[DILL] == grows("dill")


@pytest.mark.usefixtures("often")
def test_nor_does_what_was_kept_before_its_repository_was_read_to_its_end(
    garden: Repository, crawler: Crawler, dies: Dies
) -> None:
    before = garden.head.sha
    crawler.crawl(days=8)
    garden.commit({f"beds/{herb}/SKILL.md": grows(herb, "Drown it.") for herb in HERBS})
    dies("skillsmp")
    assert sum(b"Drown it." in (text or b"") for text in crawler.held().values()) == 1
    garden.branch("main", before)
    held = a_week(crawler, "skillsmp")
    assert held == {f"ann/garden/beds/{herb}": grows(herb) for herb in HERBS}


def test_nor_does_what_another_ref_had(
    world: World, garden: Repository, crawler: Crawler, dies: Dies
) -> None:
    before = garden.commit({"beds/dill/SKILL.md": None}, branch="dev").sha
    world.list_skill(garden, "beds/dill", ref="dev")
    crawler.crawl(days=8)
    garden.commit({"beds/dill/SKILL.md": grows("dill", "Of dev.")}, branch="dev")
    dies("skillsmp")
    assert crawler.held()[DILL] == grows("dill", "Of dev.")
    garden.branch("dev", before)
    assert a_week(crawler, "skillsmp")[DILL] == grows("dill")


@pytest.mark.parametrize(
    "change", ["Boils nothing", "Boils water\n- [b/tea](https://github.com/b/tea) - Tea"]
)
def test_nor_does_what_a_curated_list_said_for_a_while_or_a_refresh_saw_of_it(
    kettles: Repository, crawler: Crawler, dies: Dies, change: str
) -> None:
    before = kettles.head.sha
    crawler.crawl(LIST)
    as_it_was = crawler.held()
    kettles.commit({"README.md": ENTRY.format(change).encode()})
    dies(LIST)
    assert crawler.held() != as_it_was
    kettles.branch("main", before)
    assert a_week(crawler, LIST) == as_it_was
    kettles.commit({"README.md": ENTRY.format("Boils nothing").encode()})
    (doc_id,) = as_it_was
    options = CrawlContext(crawler.root, crawler.now, settings=crawler.settings)
    source, covers = open_part(LIST, Target(doc_id), options)
    collect_some(source, crawler.root, covers, run_id="one", now=crawler.now)
    assert crawler.held() != as_it_was
    kettles.branch("main", before)
    assert a_week(crawler, LIST) == as_it_was


def shelf(*items: object) -> HandSource:
    """Return a source that says, whatever it holds, that it is in the state it was in."""
    return HandSource("dir:shelf", *items, version="1")


def died(_: object) -> None:
    raise Died


def test_a_night_that_died_without_changes_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = Nights(tmp_path / "root")
    nights.crawl(shelf(skill("a"), skill("b")))
    with monkeypatch.context() as patched:
        patched.setattr(HandSource, "usage", died)
        with pytest.raises(Died):
            nights.crawl(shelf(skill("a"), skill("b")))
    for _ in range(2):
        assert nights.crawl(shelf(skill("a"), skill("b"))).unchanged == 2
        assert set(nights.seen("last_seen_at").values()) == {nights.now}


@pytest.mark.parametrize("met", [[skill("a", "Knead."), skill("b")], [skill("b")]], ids=["changed", "gone"])
def test_what_a_refresh_that_died_saw_of_a_source_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, met: list[object]
) -> None:
    nights = Nights(tmp_path / "root")
    nights.crawl(shelf(skill("a"), skill("b")))
    before = nights.seen("digest")
    nights.night += 1
    with monkeypatch.context() as patched:
        patched.setattr(HandSource, "usage", died)
        with pytest.raises(Died):
            collect_some(shelf(*met), nights.root, "a".__eq__, run_id=nights.run_id, now=nights.now)
    assert nights.crawl(shelf(skill("a"), skill("b"))).listed == 2
    assert nights.seen("digest") == before
    assert set(nights.seen("retired_at").values()) == {None}


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each document be written, and noted, by itself."""
    monkeypatch.setattr("tasks.crawl.collect._CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(raw_parts, "BATCH_DOCUMENTS", 1)


def read_all(nights: Nights, hours: float, *names: str) -> None:
    """Read two sources as a run does, so many hours after the first night."""
    now = nights.now + timedelta(hours=hours)
    sources = [HandSource(f"dir:{spec}", *(skill(f"{spec}/{name}") for name in names)) for spec in "no"]
    list_sources(nights.root, [source.spec for source in sources], now)
    for source in sources:
        collect(source, nights.root, run_id=f"{now:%Y%m%d%H}", now=now)


@pytest.mark.usefixtures("often")
def test_wherever_a_reading_is_killed_what_it_goes_on_with_was_first_seen_at_once(tmp_path: Path) -> None:
    for step in count(step=3):
        nights = Nights(tmp_path / str(step))
        with suppress(Killed), dying_at(step):
            read_all(nights, 0, "a", "b")
            break
        read_all(nights, 1, "a", "b")
        assert len({*nights.seen("first_seen_at").values()}) == 1
        read_all(nights, 24, "a", "b", "c")
        assert len({*nights.seen("first_seen_at").values()}) == 2, "a reading that has ended goes on no more"
    assert step > 8


@pytest.mark.usefixtures("often")
def test_a_reading_that_was_killed_long_ago_begins_again(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for step in count():
        with pytest.raises(Killed), dying_at(step):
            read_all(nights, 0, "a", "b")
        if nights.seen("doc_id"):
            break
    read_all(nights, 48, "a", "b")
    times = sorted(nights.seen("first_seen_at").values())
    assert [time - nights.now for time in times] == [timedelta(), *[timedelta(hours=48)] * 3]
