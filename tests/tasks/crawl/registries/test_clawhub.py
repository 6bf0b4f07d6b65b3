"""ClawHub: read down to the mark, with its verdicts, withdrawals and digests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.registries import Hub, Page
from tests.support.crawl.zip_files import zipped


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


def test_a_night_reads_to_the_mark_and_a_week_sees_what_was_withdrawn(hub: Hub, crawler: Crawler) -> None:
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
    assert (week.unchanged, week.withdrawn, week.requests) == (2, 1, 3)
    assert sorted(crawler.held()) == ["127.0.0.1/ann/kelp", "127.0.0.1/ann/moss"]

    pages: list[tuple[Page, str]] = [(b"[]", "shape"), (b"<html>", "html"), ((404, {}, b""), "missing")]
    for page, reason in pages:
        hub.pages["/api/v1/skills"] = page
        assert crawler.crawl("clawhub").failed == {reason: 1}
    assert len(crawler.held()) == 2

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


def test_a_verdict_on_a_skill_that_did_not_change_is_seen_within_a_week(hub: Hub, crawler: Crawler) -> None:
    crawler.crawl("clawhub", days=7)
    hub.judge("kelp", verdict="suspicious")
    for days, changed in ((1, 1), (6, 0), (7, 0)):
        assert crawler.crawl("clawhub", days=days).changed == changed
    row = crawler.raw()[-1]
    assert (row["doc_id"], [f["code"] for f in row["findings"]]) == (
        "127.0.0.1/ann/kelp",
        ["registry.verdict"],
    )
    hub.judge("kelp")
    assert crawler.crawl("clawhub").changed == 1
    assert crawler.raw()[-1]["findings"] == []


def test_of_a_slug_that_two_owners_have_both_skills_are_held(hub: Hub, crawler: Crawler) -> None:
    hub.share("kelp", "bob", grows("kelp", "Cut it."))
    report = crawler.crawl("clawhub")
    assert (report.new, report.failed) == (4, {})
    held = crawler.held()
    assert held["127.0.0.1/ann/kelp"] == grows("kelp")
    assert held["127.0.0.1/bob/kelp"] == grows("kelp", "Cut it.")
    assert (crawler.crawl("clawhub").unchanged, crawler.stale()) == (4, set())
    for row in hub.rows.values():
        del row["createdAt"]
    other = Crawler(crawler.folder / "other", crawler.settings)  # without its time a row is nobody's
    report = other.crawl("clawhub")
    assert (report.new, sum(report.failed.values())) == (2, 2)
    assert not [doc_id for doc_id in other.held() if doc_id.endswith("/kelp")]


@pytest.mark.parametrize(
    ("files", "pages", "reason"),
    [
        ({"SKILL.md": "0" * 64}, {}, "digest-mismatch"), ({"other.md": "0" * 64}, {}, "digest-mismatch"),
        ({}, {"/zip/kelp": (200, {"Content-Type": "application/json"}, b'{"repo":"a/b"}')}, "not-read"),
        ({}, {"/zip/kelp": (403, {}, b"")}, "denied"),
        ({}, {"/zip/kelp": b"no archive"}, "archive-damaged"),
        ({}, {"/zip/kelp": zipped({"x/SKILL.md": b"x"})}, "digest-mismatch"),
        ({}, {"/zip/kelp": zipped({"SKILL.md": grows("kelp"), "x.sh": b"x"})}, "digest-mismatch"),
        ({}, {"/api/v1/skills/kelp": {"owner": {"handle": "../x"}}}, "malformed"),
        ({}, {"/api/v1/skills/kelp": b"[]"}, "shape"),
        ({}, {"/api/v1/skills/kelp": {"owner": {"handle": "\ud800/x"}}}, "malformed"),
    ],
)  # fmt: skip
def test_what_does_not_verify_is_named(
    hub: Hub, crawler: Crawler, files: dict[str, str], pages: dict[str, Page], reason: str
) -> None:
    hub.put("kelp", grows("kelp"), **files)
    hub.pages |= pages
    report = crawler.crawl("clawhub")
    assert (report.new, report.failed) == (2, {reason: 1})


def test_what_could_not_be_read_is_not_unchanged_the_next_night(hub: Hub, crawler: Crawler) -> None:
    crawler.crawl("clawhub")
    hub.put("kelp", grows("kelp", "Cut it."))
    hub.put("moss", grows("moss", "Soft."))
    hub.rows["moss"]["updatedAt"] = 10**18  # any time may be stated
    good, hub.pages["/zip/kelp"] = hub.pages["/zip/kelp"], (500, {}, b"")
    for _ in range(2):
        crawler.crawl("clawhub")
        assert crawler.stale() == {"127.0.0.1/ann/kelp"}
    hub.pages["/zip/kelp"] = good
    hub.put("tide", grows("tide", "High."))
    assert crawler.crawl("clawhub").changed == 2


def test_one_that_is_listed_no_more_is_asked_for_until_it_answers(hub: Hub, crawler: Crawler) -> None:
    crawler.crawl("clawhub", days=7)
    del hub.rows["kelp"]
    page, hub.pages["/api/v1/skills/kelp"] = hub.pages["/api/v1/skills/kelp"], (403, {}, b"")
    for _ in range(2):
        crawler.crawl("clawhub")
        assert crawler.stale() == {"127.0.0.1/ann/kelp"}
    assert isinstance(page, dict)
    hub.pages["/api/v1/skills/kelp"] = {**page, "moderation": {"isMalwareBlocked": True}}
    assert crawler.crawl("clawhub").withdrawn == 1
