"""Crawl ClawHub with 5,000 skills, again, and with 1 % of them changed: requests and seconds.

Run by hand: `python -m tests.benchmarks.crawl_registries`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.registries import Hub

SKILLS = 5_000


def main() -> None:
    """Print a line a night."""
    with Hub() as hub, tempfile.TemporaryDirectory() as folder:
        hub.pages["/api/v1/download"] = hub.download
        for number in range(SKILLS):
            hub.put(f"skill-{number}", grows(f"skill-{number}"))
        crawler = Crawler(Path(folder), settings_of({"SKILLERY_CLAWHUB_URL": hub.url}))
        for night in ("first", "unchanged", "1 % changed", "7 days later"):
            if night == "1 % changed":
                for number in range(0, SKILLS, 100):
                    hub.put(f"skill-{number}", grows(f"skill-{number}", "Water it at dusk."))
            began = time.monotonic()
            report = crawler.crawl("clawhub", days=7 if night == "1 % changed" else 1)
            counted = f"{report.new} new, {report.changed} changed, {report.unchanged} unchanged"
            seconds = time.monotonic() - began
            sys.stdout.write(f"{night}: {report.requests} requests, {seconds:.1f} s, {counted}\n")


if __name__ == "__main__":
    main()
