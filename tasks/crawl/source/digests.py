"""Digests that a source states: kept, so that of what has the same digest nothing is fetched again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from storage.root import Root
from tasks.crawl.source.bundle import DocumentLimits


class Digests:
    """What the source said of its documents when they were last read, in a file of its own.

    What a reading takes is remembered with `write`, when it is on disk; `marks` may hold what else the source
    remembers of a reading that ended, such as an ETag.

    Args:
        root: The root.
        spec: The source.
        limits: With others all is read again.
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
