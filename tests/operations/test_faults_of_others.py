"""The network goes, or a model breaks half-way: what is served answers, and the next night catches up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage.answers import Answers
from storage.errors import NothingReadable
from storage.lance.served import require_served
from storage.root import Root
from storage.state import nodes_table
from tasks.crawl.source.base import CrawlContext, Source
from tasks.crawl.sources import open_source
from tasks.retrieve.versions.doctor import examine
from tests.support.crawl.crawling import settings_of
from tests.support.llm.llm_asking import classifier_of
from tests.support.llm.llm_server import Asked, LlmServer
from tests.support.marketplace.populate import change, populate
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.roots.faults import Place, answers, contents, index_of
from tests.support.roots.night_process import run_night

NIGHT = datetime(2026, 6, 1, 2, tzinfo=UTC)


@pytest.fixture
def world() -> World:
    made = World()
    made.github.anonymous_limit = 1_000_000
    populate(made, repositories=4, skills=16)
    return made


def skillsmp(root: Root, market: Marketplace, now: datetime) -> Source:
    return open_source("skillsmp", CrawlContext(root, now, None, settings=settings_of(market.environment())))


def test_without_a_network_what_is_served_answers_marked_stale_and_the_next_night_catches_up(
    place: Place, world: World, tmp_path: Path
) -> None:
    root = Root(tmp_path / "network")
    (root.folder / "models").mkdir(parents=True)
    (root.folder / "models" / place.export.name).symlink_to(place.export)
    with Marketplace(world) as market:
        run_night(root, skillsmp(root, market, NIGHT), place.export, "first", NIGHT)
        gone = skillsmp(root, market, NIGHT + timedelta(days=1))
    before = contents(root)
    change(world, 0.07)

    with pytest.raises(NothingReadable):
        run_night(root, gone, place.export, "cut-off", NIGHT + timedelta(days=1))

    assert contents(root) == before
    found = index_of(root).search("a skill")["results"]
    assert found
    assert all(result["stale"] for result in found)
    assert examine(root) == []
    again = NIGHT + timedelta(days=10)
    with Marketplace(world) as market:
        assert run_night(root, skillsmp(root, market, again), place.export, "again", again)
    assert contents(root)["documents"] != before["documents"]
    assert not any(result["stale"] for result in index_of(root).search("a skill")["results"])


def test_a_model_that_breaks_half_way_leaves_types_to_the_next_night_and_nothing_unserved(
    place: Place,
) -> None:
    before = answers(place.root)

    def breaks(asked: Asked) -> str | None:
        return "500" if len(server.asked) > 3 else None

    with LlmServer(breaks) as server, Answers(place.root) as kept:
        place.night("broken", classifier=classifier_of(server.url, kept, concurrency=1))
        typed = nodes_table(place.root).read()["classifier"].value_counts()
        server.fault = lambda _: None
        assert typed.height > 1
        assert require_served(place.root).version == "v-broken"
        assert answers(place.root)[0] != before[0]
        contents(place.root)
        assert examine(place.root) == []
        sent = server.requests
        place.night("whole", classifier=classifier_of(server.url, kept, concurrency=1))
        assert server.requests > sent
    assert nodes_table(place.root).read()["classifier"].n_unique() == 1
    contents(place.root)
