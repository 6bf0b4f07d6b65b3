"""`python -m tests.support.crawl.crawl_process ROOT URLS.json [DELAY]` crawls a marketplace."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from storage.locks import writer_lock
from storage.root import Root
from tasks.crawl.collect import collect
from tasks.crawl.source.base import CrawlContext
from tasks.crawl.sources import open_source
from tests.support.crawl.crawling import settings_of


def main() -> None:
    root = Root(sys.argv[1])
    delay = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    settings = settings_of(json.loads(Path(sys.argv[2]).read_text()), request_delay=delay)
    now = datetime.now(UTC)
    with writer_lock(root):
        source = open_source("skillsmp", CrawlContext(root, now, settings=settings))
        report = collect(source, root, run_id=secrets.token_hex(4), now=now)
    sys.stdout.write(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
