"""Sources made by hand, and a root on which crawl and refine run night after night."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

from storage.partitions import PartitionedTable
from storage.root import Root
from storage.schemas import DROPPED, Finding, RawDocument
from storage.state import aliases_table, documents_table, folded_table, refined_table, seen_table
from tasks.crawl.collect import SourceReport, collect
from tasks.crawl.source.base import Source
from tasks.crawl.source.bundle import DocumentLimits, SourceEntry, consume, take_bundle
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import RefinePlan, plan_refine
from tasks.refine.update import update_corpus

FIRST_NIGHT = datetime(2026, 3, 1, 2, tzinfo=UTC)


def skill(doc_id: str, text: str = "Let it rise.", **origin: Any) -> RawDocument:  # noqa: ANN401
    content = f"---\nname: bread\ndescription: Bakes bread.\n---\n{text}\n".encode()
    return raw(doc_id, content, **origin)


def raw(doc_id: str, content: bytes, **origin: Any) -> RawDocument:  # noqa: ANN401
    digest = hashlib.sha256(content).hexdigest()
    return RawDocument(
        doc_id=doc_id, source="", content=content, size=len(content), raw_hash=digest, **origin
    )


def with_files(document: RawDocument, files: Mapping[str, bytes]) -> RawDocument:
    """Return a document with these files beside its SKILL.md."""
    found: list[Finding] = []
    entries = [SourceEntry(path) for path in files]
    bundle = take_bundle(entries, lambda e, keep: consume([files[e.path]], keep), DocumentLimits(), found)
    return replace(document, files=bundle.files, contents=bundle.contents, findings=tuple(found))


class HandSource(Source):
    """Yields what it is given, in that order; raises what is an exception.

    Args:
        spec: Its spec.
        items: Documents, Dropped rows, exceptions.
        version: What it says of its state; an exception is raised.
    """

    def __init__(self, spec: str, *items: object, version: str | Exception | None = None) -> None:
        self.spec, self.items, self.state, self.reads = spec, items, version, 0

    def version(self) -> str | None:
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    def read(self) -> Iterator[Any]:
        self.reads += 1
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, RawDocument):
                fields = {name: getattr(item, name) for name in item.__dataclass_fields__}
                yield RawDocument(**{**fields, "source": self.spec})
            else:
                yield item


class Nights:
    """A root; each night crawls some sources and refines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.night = folder, Root(folder), 0
        self.hold: str | None = None
        self.risks_added: list[dict[str, Any]] = []  # of the last night

    @property
    def now(self) -> datetime:
        return FIRST_NIGHT + timedelta(days=self.night)

    @property
    def run_id(self) -> str:
        return f"{self.now:%Y%m%d}"

    def crawl(self, source: Source, limit: int | None = None) -> SourceReport:
        """Crawl one source, in a night of its own."""
        self.night += 1
        return collect(source, self.root, run_id=self.run_id, now=self.now, limit=limit)

    def plan(self, limits: FilterLimits | None = None) -> RefinePlan:
        return plan_refine(self.root, limits or FilterLimits())

    def refine(self, limits: FilterLimits | None = None, raw: Root | None = None) -> dict[str, int]:
        """Refine what was crawled, in the same night; `raw` is where the raw parts lie, if not here."""
        given: dict[str, Any] = {"run_id": self.run_id, "limits": limits or FilterLimits(), "raw": raw}
        batches = [
            refine_batch(self.root, parts, hold=self.hold, **given) for parts in self.plan(limits).batches
        ]
        self.risks_added = [one for batch in batches for one in batch["risks_added"]]
        return update_corpus(self.root, run_id=self.run_id, now=self.now)

    def run(self, *sources: Source) -> dict[str, int]:
        """Crawl sources and refine."""
        for source in sources:
            self.crawl(source)
        return self.refine()

    def seen(self, *columns: str) -> dict[tuple[str, str], Any]:
        """Return rows of `seen` (one column: its value) by doc_id and source."""
        rows = seen_table(self.root).read().to_dicts()
        by_key = {(r["doc_id"], r["source"]): r for r in rows}
        return {k: r[columns[0]] if len(columns) == 1 else r for k, r in sorted(by_key.items())}

    def documents(self) -> list[str]:
        return self._ids(documents_table(self.root))

    def folded(self) -> list[str]:
        return self._ids(folded_table(self.root))

    def _ids(self, table: PartitionedTable) -> list[str]:
        return sorted(table.read()["doc_id"])

    def aliases(self) -> dict[str, tuple[str, str]]:
        rows = aliases_table(self.root).read().select("doc_id", "survivor", "kind").iter_rows()
        return {doc_id: (survivor, kind) for doc_id, survivor, kind in rows}

    def outcomes(self) -> dict[tuple[str, str], str]:
        rows = refined_table(self.root).read().select("doc_id", "source", "outcome").iter_rows()
        return {(doc_id, source): outcome for doc_id, source, outcome in rows}

    def dropped(self) -> pl.DataFrame:
        """Return what the last night dropped."""
        file = self.folder / f"dropped/{self.run_id}.parquet"
        return pl.read_parquet(file) if file.exists() else pl.DataFrame(schema=DROPPED)

    def raw_parts(self) -> list[str]:
        return self.root.files("raw/documents", ".parquet")

    def times(self, *folders: str) -> dict[str, int]:
        """Return when each file below these folders was last written."""
        files = [f for folder in folders for f in self.root.files(folder)]
        return {f: (self.folder / f).stat().st_mtime_ns for f in files}


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def dying_at(number: int | None) -> Iterator[None]:
    """Let the write of that number, from 0, not happen, nor anything after it."""
    write, left = Root.write, [number]

    def counted(self: Root, relative: str, data: bytes) -> None:
        if left[0] is not None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
        write(self, relative, data)

    with mock.patch.object(Root, "write", counted):
        yield
