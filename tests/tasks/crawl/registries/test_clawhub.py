"""ClawHub: read down to the mark, with its verdicts, withdrawals and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.site import Page, Site
from tests.support.crawl.zip_files import zipped

GONE: Page = (404, {}, b"")


class Hub(Site):
    """A registry of skills by slug, listed by when they were updated."""

    def __init__(self) -> None:
        super().__init__({"/api/v1/skills": self.listing, "/api/v1/search": self.found})
        self.rows: dict[str, dict[str, Any]] = {}
        self.clock = 1_000

    def put(
        self, slug: str, content: bytes, *, moderation: dict[str, Any] | None = None, **files: str
    ) -> None:
        self.clock += 1
        version = f"1.0.{self.clock}"
        created = self.rows.get(slug, {"createdAt": self.clock})["createdAt"]
        row = {
            "slug": slug,
            "createdAt": created,
            "updatedAt": self.clock,
            "latestVersion": {"version": version},
        }
        self.rows[slug] = row
        digest = files or {"SKILL.md": hashlib.sha256(content).hexdigest()}
        base, rows = f"/api/v1/skills/{slug}", [{"path": p, "sha256": d} for p, d in digest.items()]
        self.pages[base] = {"skill": row, "owner": {"handle": "ann"}, "moderation": moderation}
        self.pages[f"{base}/versions/{version}"] = {"version": {"version": version, "files": rows}}
        self.pages[f"/zip/{slug}"] = zipped({"SKILL.md": content, "_meta.json": version.encode()})

    def drop(self, slug: str) -> None:
        del self.rows[slug]
        self.pages[f"/api/v1/skills/{slug}"] = GONE

    def sorted_rows(self) -> list[dict[str, Any]]:
        return sorted(self.rows.values(), key=lambda row: -row["updatedAt"])

    def listing(self, query: dict[str, str]) -> Page:
        assert query["sort"] == "updated"
        at, rows = int(query.get("cursor", 0)), self.sorted_rows()
        end = at + int(query["limit"])
        return {"items": rows[at:end], "nextCursor": str(end) if end < len(rows) else None}

    def found(self, query: dict[str, str]) -> Page:
        return {"results": [row for row in self.sorted_rows() if query["q"] in row["slug"]]}

    def download(self, query: dict[str, str]) -> Page:
        page = self.pages[f"/zip/{query['slug']}"]
        assert not callable(page)
        return page


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        hub.pages["/api/v1/download"] = hub.download
        for slug in ("kelp", "moss", "tide"):
            hub.put(slug, grows(slug))
        yield hub


@pytest.fixture
def crawler(hub: Hub, tmp_path: Path) -> Crawler:
    return Crawler(tmp_path, settings_of({"SKILLERY_CLAWHUB_URL": hub.url}))


def test_a_night_reads_down_to_the_mark_and_a_week_later_sees_what_was_withdrawn(
    hub: Hub, crawler: Crawler
) -> None:
    assert crawler.crawl("clawhub").new == 3
    assert crawler.held() == {f"127.0.0.1/ann/{slug}": grows(slug) for slug in ("kelp", "moss", "tide")}
    assert crawler.raw()[0]["files"] == []
    assert crawler.raw()[0]["repo_licence"] == "MIT-0"

    again = crawler.crawl("clawhub")
    assert (again.unchanged, again.requests) == (3, 1)

    hub.put("moss", grows("moss", "Soft."))
    hub.drop("tide")
    night = crawler.crawl("clawhub", days=7)
    assert (night.changed, night.unchanged, night.requests) == (1, 2, 4)

    week = crawler.crawl("clawhub")
    assert (week.unchanged, week.withdrawn, week.requests) == (2, 1, 2)
    assert sorted(crawler.held()) == ["127.0.0.1/ann/kelp", "127.0.0.1/ann/moss"]


def test_a_query_is_searched_for(hub: Hub, crawler: Crawler) -> None:
    assert crawler.crawl("clawhub:kelp").new == 1
    hub.drop("kelp")
    assert crawler.crawl("clawhub:kelp").withdrawn == 1


def test_verdicts_are_findings_and_what_is_malicious_is_withdrawn(hub: Hub, crawler: Crawler) -> None:
    hub.put("kelp", grows("kelp"), moderation={"verdict": "suspicious", "reasonCodes": ["suspicious.exec"]})
    crawler.crawl("clawhub")
    (kelp,) = [row for row in crawler.raw() if row["doc_id"].endswith("kelp")]
    assert [(f["code"], f["message"]) for f in kelp["findings"]] == [
        ("registry.verdict", "ClawHub has judged it as suspicious: suspicious.exec")
    ]
    hub.put("kelp", grows("kelp"), moderation={"verdict": "malicious", "isMalwareBlocked": True})
    assert crawler.crawl("clawhub").withdrawn == 1
    assert "127.0.0.1/ann/kelp" not in crawler.held()


@pytest.mark.parametrize(
    ("files", "pages", "reason"),
    [
        ({"SKILL.md": "0" * 64}, {}, "digest-mismatch"),
        ({"other.md": "0" * 64}, {}, "digest-mismatch"),
        ({}, {"/zip/kelp": (200, {"Content-Type": "application/json"}, b'{"repo":"a/b"}')}, "not-read"),
        ({}, {"/zip/kelp": (403, {}, b"")}, "denied"),
        ({}, {"/zip/kelp": b"no archive"}, "archive-damaged"),
        ({}, {"/zip/kelp": zipped({"x/SKILL.md": b"x"})}, "digest-mismatch"),
        ({}, {"/api/v1/skills/kelp": {"owner": {"handle": "../x"}}}, "malformed"),
        ({}, {"/api/v1/skills/kelp": b"[]"}, "shape"),
    ],
)
def test_what_does_not_verify_is_named(
    hub: Hub, crawler: Crawler, files: dict[str, str], pages: dict[str, Page], reason: str
) -> None:
    hub.put("kelp", grows("kelp"), **files)
    hub.pages |= pages
    report = crawler.crawl("clawhub")
    assert (report.new, report.failed) == (2, {reason: 1})


@pytest.mark.parametrize(
    ("page", "reason"), [(b"[]", "shape"), (b"<html>", "html"), ((404, {}, b""), "missing")]
)
def test_another_list_fails_and_withdraws_nothing(
    hub: Hub, crawler: Crawler, page: Page, reason: str
) -> None:
    crawler.crawl("clawhub")
    hub.pages["/api/v1/skills"] = page
    assert crawler.crawl("clawhub").failed == {reason: 1}
    assert len(crawler.held()) == 3
