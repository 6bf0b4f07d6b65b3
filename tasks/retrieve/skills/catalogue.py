"""The catalogue of served skills: pages of entries, and their files by address.

A skill is in it if its text may be shown, its SKILL.md is kept, and its name can be a segment of an address;
others are left to `search` and `page`, and pages count why.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from storage.errors import UnknownDocument
from storage.lance.served import Licences, require_licences
from storage.partitions import partition_of
from storage.root import Root
from tasks.crawl.source.identity import doc_key, shown_spec
from tasks.retrieve.open_version import OpenVersion
from tasks.retrieve.paging.types import PagedDocument
from tasks.retrieve.revisions.edition import SERVED_COLUMNS, Edition, served_edition
from tasks.retrieve.served_index import ServedIndex, asked_again
from tasks.retrieve.skills.bundle import (
    Address,
    ServedBundle,
    ServedFile,
    is_segment,
    own_files,
    parse_uri,
    skill_file_of,
)

PAGE_SKILLS = 32
_KEPT_BYTES = 32_000_000  # SKILL.md files of bundles that are kept for the next request
_KEPT = 512
_ORIGIN = ("source", "repo", "repo_id", "url", "commit", "licence")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of one served version by their keys.

    `places` holds partition and key of each row in the order of pages: documents of one partition lie in one
    file, of which a page reads few. `inside` holds the rows of skills below the folder of another by its key.
    """

    version: str
    rows: dict[str, Row]
    places: list[tuple[int, str]]
    inside: Mapping[str, list[Row]]

    @classmethod
    def of(cls, version: str, rows: list[Row]) -> Snapshot:
        """Return the snapshot of the rows of a version."""
        by_key, inside = {doc_key(row["doc_id"]): row for row in rows}, defaultdict[str, list[Row]](list)
        for key, row in by_key.items():
            parts = key.split("/")
            for end in range(1, len(parts)):
                if (folder := "/".join(parts[:end])) in by_key:
                    inside[folder].append(row)
        return cls(version, by_key, sorted((partition_of(key), key) for key in by_key), dict(inside))


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A page of skills, the key to go on after (None: the last page), and why others were left out."""

    version: str
    bundles: list[ServedBundle]
    after: str | None
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True)
class SkillReading:
    """A served skill as one version has it; `document` is None where it was not asked for, or is withheld."""

    edition: Edition
    alias: str | None
    version: str
    document: PagedDocument | None


class SkillCatalogue:
    """Reads what a root serves as skills; threads may share it, and each answer is of one version."""

    def __init__(self, index: ServedIndex, root: Root) -> None:
        self._index, self._root = index, root
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._kept: OrderedDict[tuple[object, ...], ServedBundle] = OrderedDict()

    @asked_again
    def page(self, after: str | None = None, size: int = PAGE_SKILLS) -> EntryPage:
        """Return the page of entries that follows a key; the key need not be served any more.

        Raises `NotPublished` if nothing is served; `StorageError` if a file of the root cannot be read.
        """
        with self._index.version() as now:
            return self._page(now, after, size)

    @asked_again
    def bundle(self, uri: str) -> tuple[ServedBundle, Address]:
        """Return the skill that an address leads to, and the parts of the address.

        Raises `UnknownDocument` if no skill is served there; `NotPublished`, `StorageError` as `page`.
        """
        address = parse_uri(uri)
        with self._index.version() as now:
            snapshot, licences = self._rows(now), require_licences(self._root)
            row = snapshot.rows.get(doc_key(address.doc_id))
            bundle = None if row is None else self._bundle(snapshot, row, licences)
        if not isinstance(bundle, ServedBundle) or bundle.name != address.name:
            why = f" ({bundle})" if isinstance(bundle, str) else ""
            raise UnknownDocument(f"no skill is served at {uri[:200]!r}{why}")
        return bundle, address

    def edition(self, text: str) -> tuple[Edition, str | None, str]:
        """Return the served edition of the document that a text means, its alias if any, and the version.

        Raises `UnknownDocument` if no served document has this id or name, or its snapshot is gone;
        `NotPublished`, `StorageError` as `page`.
        """
        read = self.reading(text)
        return read.edition, read.alias, read.version

    @asked_again
    def reading(self, text: str, *, nodes: bool = False) -> SkillReading:
        """Return the edition, and with `nodes` the document with its nodes, of what a text means.

        Raises as `edition`.
        """
        with self._index.version() as now:
            row, alias_of = self._index.locate(now, text)
            edition = served_edition(self._root, row)
            shown = nodes and edition.licence_class == "allow"
            document = self._index.paged_document(now, row) if shown else None
        return SkillReading(edition, text if alias_of else None, now.served.version, document)

    def _rows(self, now: OpenVersion) -> Snapshot:
        with self._lock:
            held = self._snapshot
            if held is None or held.version != now.served.version:
                rows = now.skills.rows(SERVED_COLUMNS).to_pylist()
                held = self._snapshot = Snapshot.of(now.served.version, rows)
            return held

    def _page(self, now: OpenVersion, after: str | None, size: int) -> EntryPage:
        snapshot, licences = self._rows(now), require_licences(self._root)
        bundles: list[ServedBundle] = []
        left_out, last = Counter[str](), None
        begin = 0 if after is None else bisect_right(snapshot.places, (partition_of(after), after))
        rest = snapshot.places[begin:]
        for number, (_, key) in enumerate(rest, start=1):
            found = self._bundle(snapshot, snapshot.rows[key], licences)
            if isinstance(found, str):
                left_out[found] += 1
            else:
                bundles.append(found)
            if number < len(rest) and (len(bundles) == size or number == 4 * size):
                last = key
                break
        return EntryPage(snapshot.version, bundles, last, dict(left_out))

    def _bundle(self, snapshot: Snapshot, row: Row, licences: Licences) -> ServedBundle | str:
        """Return a skill with its files and those of skills in its folder, or why it is left to the tools."""
        if row["kind"] != "skill":
            return "no_skill"
        if licences.class_of(row["licence"]) != "allow":
            return "withheld"
        key = (snapshot.version, row["doc_id"], licences.unknown, frozenset(licences.classes.items()))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        own = self._own(row)
        if isinstance(own, str):
            return own
        files, whole = dict(own.files), own.whole
        for path, nested in self._nested(snapshot, row) if whole else ():
            inner = self._own(nested) if licences.class_of(nested["licence"]) == "allow" else "withheld"
            inner_files: dict[str, ServedFile] = {} if isinstance(inner, str) else inner.files
            whole = whole and not isinstance(inner, str) and inner.whole
            files |= {f"{path}/{name}": file for name, file in inner_files.items()}
        found = replace(own, files=files, whole=whole)
        self._keep(key, found)
        return found

    def _own(self, row: Row) -> ServedBundle | str:
        try:
            edition = served_edition(self._root, row)
        except UnknownDocument:
            return "not_kept"
        skill = skill_file_of(edition)
        if skill is None:
            return "not_kept"
        if not is_segment(skill.front_matter["name"]):
            return "name"
        origin = {name: row[name] if name in row else edition.row[name] for name in _ORIGIN}
        origin["source"] = shown_spec(row["source"])
        return ServedBundle(row["doc_id"], skill, origin, *own_files(edition, skill))

    def _nested(self, snapshot: Snapshot, row: Row) -> list[tuple[str, Row]]:
        same = (row["kind"], row["source"])
        inside = snapshot.inside.get(doc_key(row["doc_id"]), ())
        return [
            (r["doc_id"][len(row["doc_id"]) + 1 :], r) for r in inside if (r["kind"], r["source"]) == same
        ]

    def _keep(self, key: tuple[object, ...], bundle: ServedBundle) -> None:
        with self._lock:
            self._kept[key] = bundle
            while len(self._kept) > _KEPT or (len(self._kept) > 1 and self._bytes() > _KEPT_BYTES):
                self._kept.popitem(last=False)

    def _bytes(self) -> int:
        return sum(len(kept.skill.content) for kept in self._kept.values())
