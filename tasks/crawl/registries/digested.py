"""A digested source: its list states the digest of each thing, and only what changed is fetched."""

from __future__ import annotations

import hashlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from storage.root import Root
from storage.schemas import RawDocument
from tasks.crawl.github.archive import ArchiveRefused
from tasks.crawl.http.responses import HttpTerminal, HttpTransient, QuotaExhausted
from tasks.crawl.source.base import CrawlContext, Item, Missed, RemoteSource, Unchanged, drain
from tasks.crawl.source.bundle import DocumentLimits

# A thing's key, its digest where it is to be remembered, and its items.
Fetched: TypeAlias = tuple[str, str | None, list[Item]]


class Digests:
    """What the source said of its documents when they were last read, in a file of its own.

    What a reading takes is remembered with `write`, when it is on disk; `marks` may hold what else the source
    remembers of a reading that ended, such as an ETag. With other limits all is read again.
    """

    def __init__(self, root: Root, spec: str, limits: DocumentLimits) -> None:
        kind, name = spec.partition(":")[0], hashlib.sha256(spec.encode()).hexdigest()[:16]
        self._root, self._file = root, f"state/crawl/{kind}-{name}.json"
        kept = (limits.kept_files, limits.kept_bytes, limits.document_bytes)
        self._limits = "/".join(map(str, kept))
        held = root.read_json(self._file) or {}
        same = held.get("limits") == self._limits
        self.marks: dict[str, Any] = held["marks"] if same else {}
        self._rows: dict[str, list[str]] = held["digests"] if same else {}  # a digest, then doc_ids
        self._taken: dict[str, list[str]] = {}
        self._new_marks: dict[str, Any] | None = None

    def same(self, key: str, digest: str) -> tuple[str, ...]:
        """Return the ids of the documents of a thing that has the same digest as before; none: it has not."""
        row = self._rows.get(key, [""])
        return tuple(row[1:]) if row[0] == digest else ()

    def keys(self) -> list[str]:
        """Return the things that were read before and whose documents are there."""
        return list(self._rows)

    def ids(self, key: str) -> tuple[str, ...]:
        """Return the ids of the documents that a thing had before."""
        return tuple(self._rows.get(key, [""])[1:])

    def take(self, key: str, digest: str, doc_ids: Collection[str]) -> None:
        """Note the digest of a thing after its documents were yielded."""
        self._taken[key] = [digest, *doc_ids]

    def end(self, **marks: Any) -> None:  # noqa: ANN401 (JSON)
        """Set the marks of a reading that came to its end."""
        self._new_marks = marks

    async def fetched(
        self, key: str, digest: str | None, doc_id: str, fetch: Callable[[Path], Awaitable[list[Item]]]
    ) -> Fetched:
        """Return what `fetch` makes of a thing, given a folder, unless the digest is as before.

        If it cannot be had or verified, what is held of it is missed; without anything, `doc_id` is. The end
        of a quota is raised.
        """
        if digest and (ids := self.same(key, digest)):
            return key, None, [Unchanged(ids)]
        try:
            with tempfile.TemporaryDirectory(prefix="skillery-artifact-") as folder:
                return key, digest, await fetch(Path(folder))
        except QuotaExhausted:
            raise
        except (HttpTerminal, HttpTransient, ArchiveRefused) as error:
            return key, None, [Missed(self.ids(key) or (doc_id,), error.reason, str(error))]

    async def taken(self, results: AsyncIterable[Fetched]) -> AsyncGenerator[Item, None]:
        """Yield the items of what was fetched; when all are written, its ids and digest are remembered."""
        async for key, digest, items in results:
            for item in items:
                yield item
            if doc_ids := [item.doc_id for item in items if isinstance(item, RawDocument)]:
                self.take(key, digest or "", doc_ids)

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget what was read before of documents whose text is about to change."""
        changing = set(doc_ids)
        if lost := [key for key, row in self._rows.items() if not changing.isdisjoint(row[1:])]:
            for key in lost:
                del self._rows[key]
            self.marks = {}
            self._write()

    def write(self) -> None:
        """Remember what was taken."""
        if self._taken or self._new_marks is not None:
            self._rows |= self._taken
            self.marks = self.marks if self._new_marks is None else self._new_marks
            self._taken, self._new_marks = {}, None
            self._write()

    def _write(self) -> None:
        self._root.write_json(
            self._file, {"limits": self._limits, "marks": self.marks, "digests": self._rows}
        )


class DigestedSource(RemoteSource, ABC):
    """A source that remembers `Digests`; it implements `_items`, which may raise what requests raise."""

    exhaustive, gives_listings = True, False

    def __init__(self, spec: str, context: CrawlContext) -> None:
        super().__init__(spec, context)
        self._limits = context.limits
        self._digests = Digests(context.root, spec, context.limits)

    def invalidate(self, doc_ids: Collection[str]) -> None:
        """Forget the digests of these documents."""
        self._digests.invalidate(doc_ids)

    def checkpoint(self) -> None:
        """Remember the digests of what was yielded."""
        self._digests.write()

    def read(self) -> Iterator[Item]:
        """Yield what changed, and the ids of what did not; raises as `Source.read`."""
        yield from drain(self._items)

    @abstractmethod
    def _items(self) -> AsyncGenerator[Item, None]:
        """Yield what `read` yields."""
