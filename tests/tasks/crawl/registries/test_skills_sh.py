"""Names from skills.sh, bytes from GitHub, and nothing without a token."""

from __future__ import annotations

import pytest

from tests.support.crawl.crawling import Crawler, grows
from tests.support.crawl.site import Page, Site
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World

SEARCH = "/api/v1/skills/search"


def row(source: str, slug: str, kind: str = "github") -> dict[str, str]:
    return {"source": source, "slug": slug, "sourceType": kind, "url": f"https://skills.sh/{slug}"}


def test_what_is_found_is_read_where_it_lies(
    garden: Repository, world: World, crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("ann/garden", "dill"), row("ann/garden", "nettle"), row("e.org", "kelp", "well-known")]
    with Site({SEARCH: {"data": rows}}) as site:
        crawler.settings = crawler.settings.model_copy(update={"skillssh_url": site.url})
        assert crawler.crawl("skillssh:herbs").failed == {"unauthorised": 1}
        assert site.asked == []

        monkeypatch.setenv("SKILLERY_SKILLSSH_TOKEN", "t0ken")
        report = crawler.crawl("skillssh:herbs")
        assert (report.new, report.failed) == (1, {"missing": 1, "not-read": 1})
        assert list(crawler.held()) == ["ann/garden/beds/dill"]
        again = crawler.crawl("skillssh:herbs")
        assert (again.unchanged, again.requests) == (1, 2)

        garden.commit({"beds/dill/SKILL.md": grows("dill", "Sow it again.")})
        assert crawler.crawl("skillssh:herbs").changed == 1

        world.repository("bob/solo").commit({"SKILL.md": grows("solo"), "x/SKILL.md": grows("x")})
        site.pages[SEARCH] = {"data": [row("bob/solo", "solo")]}
        assert crawler.crawl("skillssh:solo").new == 1
        assert (crawler.crawl("skillssh:solo").unchanged, "bob/solo" in crawler.held()) == (1, True)


@pytest.mark.parametrize(
    ("page", "reason"),
    [(b"{}", "shape"), ((401, {}, b""), "unauthorised"), ((503, {}, b""), "server"), (b"<html>", "html")],
)
def test_another_answer_fails_the_source(
    crawler: Crawler, monkeypatch: pytest.MonkeyPatch, page: Page, reason: str
) -> None:
    monkeypatch.setenv("SKILLERY_SKILLSSH_TOKEN", "t0ken")
    with Site({SEARCH: page}) as site:
        crawler.settings = crawler.settings.model_copy(update={"skillssh_url": site.url})
        assert crawler.crawl("skillssh:herbs").failed == {reason: 1}
