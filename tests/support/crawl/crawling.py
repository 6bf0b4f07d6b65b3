"""A root that crawls the marketplace on loopback, night after night, and refines what it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from storage.parquet import read_frame
from storage.root import Root
from storage.schemas import DROPPED, RAW_DOCUMENTS
from storage.state import aliases_table, seen_table
from tasks.crawl.collect import SourceReport, collect
from tasks.crawl.http.settings import CrawlSettings
from tasks.crawl.source.base import CrawlContext, Source
from tasks.crawl.sources import open_source

FIRST_NIGHT = datetime(2026, 6, 1, 2, tzinfo=UTC)


def settings_of(environment: Mapping[str, str], **settings: float) -> CrawlSettings:
    """Return the settings of a marketplace's environment, with waiting switched off."""
    urls = {name.removeprefix("SKILLERY_").lower(): url for name, url in environment.items()}
    return CrawlSettings.model_validate({**urls, "request_delay": 0.0, "retry_wait_max": 0.0, **settings})


def opened(spec: str, **settings: float) -> Source:
    """Return the source of a spec that needs no root, read with these settings."""
    return open_source(spec, CrawlContext(Root("unused"), FIRST_NIGHT, settings=settings_of({}, **settings)))


@dataclass
class Crawler:
    """Crawls into one root; each night is a day after the last.

    Args:
        folder: The root's folder.
        settings: Its settings.
        now: The night to come.
    """

    folder: Path
    settings: CrawlSettings
    now: datetime = FIRST_NIGHT
    nights: int = field(default=0, init=False)

    @property
    def root(self) -> Root:
        return Root(self.folder)

    def crawl(
        self, spec: str = "skillsmp", limit: int | None = None, days: float = 1, keep_files: int = 512
    ) -> SourceReport:
        """Crawl one source, then let `days` pass."""
        settings = self.settings.model_copy(update={"keep_files": keep_files})
        opening = CrawlContext(self.root, self.now, limit, settings)
        self.nights += 1
        source, run_id = open_source(spec, opening), f"night-{self.nights}"
        report = collect(source, self.root, run_id=run_id, now=self.now, limit=limit, settings=settings)
        self.now += timedelta(days=days)
        return report

    def held(self) -> dict[str, bytes | None]:
        """Return the text of every document that is not retired, by doc_id."""
        rows = seen_table(self.root).read().filter(pl.col("retired_at").is_null()).to_dicts()
        found = {}
        for row in rows:
            part = read_frame(self.root, row["raw_part"], RAW_DOCUMENTS).filter(doc_id=row["doc_id"])
            found[row["doc_id"]] = part["content"][-1]
        return found

    def raw(self) -> list[dict[str, Any]]:
        """Return the rows of raw documents of all nights."""
        files = self.root.files("raw/documents")
        return [row for f in files for row in read_frame(self.root, f, RAW_DOCUMENTS).to_dicts()]

    def stale(self) -> set[str]:
        """Return the documents that are marked stale."""
        seen = seen_table(self.root).read()
        return set(seen.filter(pl.col("stale_since").is_not_null(), pl.col("retired_at").is_null())["doc_id"])

    def aliases(self) -> dict[str, str]:
        """Return aliases and the documents that they stand for."""
        rows = aliases_table(self.root).read().select("doc_id", "survivor")
        return dict(rows.iter_rows())

    def dropped(self) -> dict[str, str]:
        """Return a detail of each reason for which anything was left out."""
        frames = [read_frame(self.root, f, DROPPED) for f in self.root.files("dropped")]
        return dict(pl.concat(frames).select("reason", "detail").iter_rows()) if frames else {}


def grows(name: str, text: str = "Water it at dawn.") -> bytes:
    """Return a SKILL.md on growing something."""
    return f"---\nname: {name}\ndescription: Grows {name}.\n---\n{text}\n".encode()
