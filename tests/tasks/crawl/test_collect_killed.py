"""A crawl that is killed at random, and begun again each time, ends as one that never was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from storage.root import Root
from storage.state import documents_table
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tests.support.marketplace.populate import populate
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World
from tests.support.paths import PROJECT

_OF_A_RUN = ("fetched_at", "first_seen_at", "run_id")


@dataclass
class Crawl:
    market: Marketplace
    root: Path
    urls: Path

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.crawl.crawl_process", str(self.root), str(self.urls)]
        return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def finish(self) -> dict[str, object]:
        process = self.start()
        printed = process.communicate()[0]
        assert process.returncode == 0
        return dict(json.loads(printed))

    def documents(self) -> pl.DataFrame:
        root = Root(self.root)
        for parts in plan_refine(root, FilterLimits()).batches:
            refine_batch(root, parts, run_id="r", limits=FilterLimits())
        update_corpus(root, run_id="r", now=datetime.now(UTC))
        return documents_table(root).read().drop(_OF_A_RUN).sort("doc_id")

    def archives(self) -> Counter[str]:
        return Counter(r.path for r in self.market.requests if r.kind == "archive")


@pytest.fixture
def market(request: pytest.FixtureRequest) -> Iterator[Marketplace]:
    repositories, skills, _ = request.param
    world = World()
    world.github.anonymous_limit = 1_000_000
    populate(world, repositories, skills)
    with Marketplace(world) as served:
        yield served


@pytest.mark.slow
@pytest.mark.parametrize(
    ("market", "kills"),
    [
        ((60, 300, 4), 4),
        pytest.param((600, 2_000, 20), 20, marks=[pytest.mark.slow, pytest.mark.timeout(1_200)]),
    ],
    indirect=["market"],
)
def test_a_crawl_killed_at_random_ends_as_an_undisturbed_one(
    market: Marketplace, kills: int, tmp_path: Path
) -> None:
    urls = tmp_path / "urls.json"
    urls.write_text(json.dumps(market.environment()))
    whole = Crawl(market, tmp_path / "whole", urls)
    started = time.monotonic()
    assert whole.finish()["state"] == "complete"
    seconds = time.monotonic() - started
    undisturbed = whole.archives()
    market.clear_requests()

    chance = random.Random(11)  # noqa: S311 - no secret
    killed = Crawl(market, tmp_path / "killed", urls)
    struck = 0
    while struck < kills:
        process = killed.start()
        time.sleep(chance.uniform(0.3, seconds * 0.7))
        struck += process.poll() is None
        process.kill()
        process.communicate()
    assert killed.finish()["state"] == "complete"

    assert killed.documents().equals(whole.documents())
    disturbed = killed.archives()
    assert set(disturbed) == set(undisturbed)
    assert max(disturbed[path] - undisturbed[path] for path in disturbed) <= 1
    assert not list((tmp_path / "killed/state/crawl").rglob("*.zip"))
