from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.errors import SourceError
from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.http.client import open_http
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import open_source
from tests.support.roots.hand_written import SKILLS

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WRONG = ["https://somebody:secret@127.0.0.1:9/", "https://127.0.0.1:99999999", "https://[", "ftp://127.0.0.1"]


@pytest.mark.parametrize("url", WRONG)
@pytest.mark.parametrize(
    ("spec", "service"),
    [
        ("skillsmp", "skillsmp_url"),
        ("github:owner/repo", "github_api_url"),
        ("mcp-registry", "mcp_registry_url"),
    ],
)
def test_an_address_that_cannot_be_asked_fails_its_source_and_keeps_its_password(
    tmp_path: Path, url: str, spec: str, service: str
) -> None:
    source = open_source(spec, CrawlContext(Root(tmp_path), NOW, settings=CrawlSettings(**{service: url})))

    with pytest.raises(SourceError) as caught:
        list(source.read())

    assert "127.0.0.1" in str(caught.value) or "[" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", WRONG)
def test_an_address_that_cannot_be_asked_leaves_the_other_sources_alone(tmp_path: Path, url: str) -> None:
    (tmp_path / "market/bees").mkdir(parents=True)
    (tmp_path / "market/bees/SKILL.md").write_text(SKILLS["bees"])
    root, network = Root(tmp_path / "root"), CrawlSettings(skillsmp_url=url, request_delay=0)
    specs = ("skillsmp", f"dir:{tmp_path}/market")

    reports = [
        collect(open_source(spec, CrawlContext(root, NOW, settings=network)), root, run_id="1", now=NOW)
        for spec in specs
    ]

    assert [report.state for report in reports] == ["failed", "complete"]
    open_http(
        network, root
    )  # that another service's address is wrong does not matter to those that are right
