"""A static registry: the files that any web server can serve, of which only what changed is written."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

import polars as pl
from pydantic import TypeAdapter, ValidationError

from storage.errors import StorageError, WrongInput
from storage.lance.served import Served
from storage.root import Root
from storage.tombstones import Forgotten
from tasks.crawl.registries.discovery import FOLDER, INDEX, OLDER_FOLDER, OLDER_INDEX, as_json, pack
from tasks.retrieve.registry.indexes import (
    ARCHIVES,
    FOLDER_MARKETPLACE,
    MARKETPLACE,
    archive_path,
    folder_marketplace,
    hosted_marketplace,
    index_files,
    older_path,
)
from tasks.retrieve.registry.offers import Contents, OfferedSkill, named, offers_of, served_rows

NOTES = "skillery-registry.json"
_NOT_ANY_MORE = ("withheld", "refused", "internal")  # of these no older archive stays either


@dataclass(slots=True)
class _Notes:
    """What a registry holds, for the next time that it is written.

    `older` says of each file of the older form its SHA-256, `archives` of which document each archive is and
    in which publication, counted from 1, it was listed last; `hosted` whether `marketplace.json` is there.
    """

    offers: dict[str, OfferedSkill]
    older: dict[str, str]
    archives: dict[str, tuple[str, int]]
    publication: int = 0
    version: int = 1
    hosted: bool = True


_FORM = TypeAdapter(_Notes)


class StaticRegistry:
    """Writes a registry to a place; readers see the old index, or the new one with all that it names.

    `anew` says whether what is there is not believed: all is written again, and no older archive stays.
    Raises `WrongInput` if a registry is there that Skillery did not write; `StorageError` if its notes are
    damaged.
    """

    def __init__(self, place: Root, *, anew: bool = False) -> None:
        self._place = place
        folders = (f"{FOLDER}/{ARCHIVES}", OLDER_FOLDER)
        self._there = {path for folder in folders for path in place.files(folder)} - {OLDER_INDEX}
        self._believed = set() if anew else self._there
        self._notes = self._read()
        self._listed: set[str] = set()
        self.written: list[str] = []
        self.removed: list[str] = []
        self.bytes = 0

    def _read(self) -> _Notes:
        place = self._place
        if not place.exists(NOTES):
            heads = (INDEX, OLDER_INDEX, MARKETPLACE, FOLDER_MARKETPLACE)
            if self._there or any(place.exists(path) for path in heads):
                msg = f"--out {place.uri} holds a registry that Skillery did not write: name another place"
                raise WrongInput(msg)
            return _Notes({}, {}, {}, hosted=False)
        try:
            return _FORM.validate_json(place.read(NOTES))
        except ValidationError as error:
            msg = f"{place.at(NOTES)} is damaged: delete it and what it lies beside, then publish again"
            raise StorageError(msg) from error

    def publish(
        self, root: Root, served: Served, rows: pl.DataFrame, refused: Collection[str], base: str | None,
        keep: int,
    ) -> tuple[dict[str, OfferedSkill], dict[str, int]]:  # fmt: skip
        """Write what is served, and return it by name with why other rows were left out.

        `refused`: severities and groups of risks that keep a skill out. `base` is the address at which the
        place will be reached; None: it is not known. `keep` says in how many publications, this one included,
        an archive was listed that stays. Raises `StorageError` if a file of the root, or of the place, cannot
        be read or written.
        """
        if not self._place.exists(NOTES):  # what a killed publication leaves is known as Skillery's
            self._place.write(NOTES, as_json(asdict(self._notes)))
        left_out: dict[str, str] = {}
        offers: list[OfferedSkill] = []
        fresh: list[tuple[str, bytes]] = []
        known = {i: o for i, o in self._notes.offers.items() if archive_path(o) in self._believed}
        for doc_id, offer, files in offers_of(root, served, refused, known, rows):
            if isinstance(offer, str):
                left_out[doc_id] = offer
                continue
            offers.append(offer)
            if files is not None:
                fresh.append((archive_path(offer), pack(files)))
            if len(fresh) == _BATCH:
                self._put(fresh)
        self._put(fresh)
        by_name = named(offers)
        older = self._write_older(by_name)
        heads = {**index_files(by_name), FOLDER_MARKETPLACE: folder_marketplace(by_name)}
        if base is not None:
            heads[MARKETPLACE] = hosted_marketplace(by_name, base)
        self._end(
            heads,
            _Notes({o.doc_id: o for o in sorted(offers, key=lambda o: o.doc_id)}, older, {}),
            keep,
            self._gone(root, served, refused, {**dict.fromkeys(rows["doc_id"]), **left_out}),
        )
        return by_name, dict(sorted(Counter(left_out.values()).items()))

    def foreign(self) -> list[str]:
        """Return the files of the place that a publication did not write, hidden ones included, sorted."""
        return sorted(set(self._place.files("")) - self._listed)

    def _gone(
        self, root: Root, served: Served, refused: Collection[str], judged: Mapping[str, str | None]
    ) -> set[str]:
        """Return the documents of which no archive may stay; `judged` says why rows were left out, if so."""
        forgotten = Forgotten.load(root)
        held = {doc_id for doc_id, _ in self._notes.archives.values()}
        why = dict(judged)
        others = pl.col("doc_id").is_in(held - judged.keys())
        if not (rows := served_rows(root, served).filter(others)).is_empty():  # filtered out, this time
            offers = offers_of(root, served, refused, self._notes.offers, rows)
            why |= {doc_id: offer for doc_id, offer, _ in offers if isinstance(offer, str)}
        return {i for i in held if forgotten.covers(i) or why.get(i) in _NOT_ANY_MORE}

    def _write_older(self, by_name: Mapping[str, OfferedSkill]) -> dict[str, str]:
        """Write the files of the older form that changed; return the SHA-256 of all by their paths."""
        wanted: dict[str, str] = {}
        fresh: list[tuple[str, bytes]] = []
        for name, offer in by_name.items():
            own = {older_path(name, path): sha256 for path, sha256 in offer.files.items()}
            wanted |= own
            if all(self._notes.older.get(p) == s and p in self._believed for p, s in own.items()):
                continue
            for path, content in unpacked(self._place.read(archive_path(offer))).items():
                at = older_path(name, path)
                if self._notes.older.get(at) != own[at] or at not in self._believed:
                    fresh.append((at, content))
            if len(fresh) >= _BATCH:
                self._put(fresh)
        self._put(fresh)
        return wanted

    def _end(self, heads: Mapping[str, bytes], notes: _Notes, keep: int, gone: Collection[str]) -> None:
        """Write the indexes and the notes, then remove what no index has named for long."""
        listed = {archive_path(offer): offer.doc_id for offer in notes.offers.values()}
        changed = {path: content for path, content in heads.items() if not self._holds(path, content)}
        notes.hosted = MARKETPLACE in heads
        notes.publication = self._notes.publication + (INDEX in changed)
        before = self._notes.archives.items()
        notes.archives = {
            path: (doc_id, last)
            for path, (doc_id, last) in before
            if notes.publication - last < keep and doc_id not in gone and path in self._believed
        } | {path: (doc_id, notes.publication) for path, doc_id in listed.items()}
        notes.archives = dict(sorted(notes.archives.items()))
        self._put(list(changed.items()))
        noted = as_json(asdict(notes))
        if not self._holds(NOTES, noted):
            self._put([(NOTES, noted)])
        stale = [MARKETPLACE] if self._notes.hosted and MARKETPLACE not in heads else []
        stale = [path for path in stale if self._place.exists(path)]
        ours = self._notes.archives.keys() | self._notes.older.keys()
        stale += sorted((self._there & ours) - notes.archives.keys() - notes.older.keys())
        self._place.each(self._place.delete, stale)
        self.removed += stale
        self._listed = {NOTES, *heads, *notes.archives, *notes.older}

    def _holds(self, path: str, content: bytes) -> bool:
        return self._place.exists(path) and self._place.read(path) == content

    def _put(self, fresh: list[tuple[str, bytes]]) -> None:
        self._place.each(lambda one: self._place.write(*one), fresh, spread=True)
        self.written += [path for path, _ in fresh]
        self.bytes += sum(len(content) for _, content in fresh)
        fresh.clear()


_BATCH = 200  # files that are written side by side


def unpacked(archive: bytes) -> Contents:
    """Return the files of an archive that `pack` made."""
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        return {name: held.read(name) for name in held.namelist()}
