"""Partitions: a table in 64 Parquet files by a hash of doc_id, so that a rewrite costs what changed.

A manifest lists the files of a table, each with its seal as last written.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from io import BytesIO

import polars as pl

from storage.errors import Missing, StorageError
from storage.parquet import check_schema, read_frame, write_frame
from storage.root import Root
from storage.seal import Seal

PARTITIONS = 64
_MANIFESTS = "state/manifests"


def partition_of(doc_id: str) -> int:
    """Return the partition of a document, 0 to 63; ids that differ only in case share one."""
    return hashlib.sha256(doc_id.casefold().encode()).digest()[0] % PARTITIONS


def _by_partition(rows: pl.DataFrame, documents: pl.Series) -> dict[int, pl.DataFrame]:
    parts = {doc_id: partition_of(doc_id) for doc_id in documents.unique()}
    if len(set(parts.values())) < 2:
        return dict.fromkeys(parts.values(), rows)
    numbered = rows.with_columns(_part=pl.Series([parts[doc_id] for doc_id in documents], dtype=pl.Int64))
    split = numbered.partition_by("_part", as_dict=True, include_key=False)
    return {part: frame for (part,), frame in split.items()}


class PartitionedTable:
    """Rows keyed by document below one folder of the root, one file a partition.

    Args:
        key: The column that names the document.
        node_key: Whether `key` holds node ids, `doc_id#ordinal`.
        listed: Whether a manifest lists the files, so that a lost one is not taken for an empty one.
        unique: Columns whose values no two rows share, `key` among them, for `upsert`.
    """

    def __init__(
        self, root: Root, folder: str, schema: pl.Schema, *, key: str = "doc_id", node_key: bool = False,
        listed: bool = False, unique: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.root, self.folder, self.schema, self._unique = root, folder, schema, list(unique)
        self.manifest = Manifest(root, folder) if listed else None
        column = pl.col(key)
        self._document = column.str.replace(r"#\d+$", "") if node_key else column

    def file(self, partition: int) -> str:
        """Return the partition's file, relative to the root."""
        return f"{self.folder}/part-{partition:02d}.parquet"

    def read(
        self, partitions: Iterable[int] | None = None, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Return the rows of the partitions named (None: all), in partition order.

        A file that is damaged, or missing although the manifest lists it, raises `StorageError`.
        """
        if partitions is None:
            # Entries first: a file that is written after them does not count as lost.
            listed = self.manifest.files() if self.manifest else set()
            present = set(self.root.files(self.folder, ".parquet"))
            files = [f for p in range(PARTITIONS) if (f := self.file(p)) in present]
            if lost := sorted(listed - present):
                raise self._lost(lost[0])
        else:
            files = [self.file(p) for p in sorted(set(partitions))]
        frames = self.root.each(lambda file: self._frame(file, columns), files, spread=True)
        names = self.schema.names() if columns is None else [n for n in self.schema if n in columns]
        held = [frame for frame in frames if frame is not None]
        if len(held) == 1:
            return held[0]
        return pl.concat([pl.DataFrame(schema={n: self.schema[n] for n in names}), *held])

    def _frame(self, file: str, columns: Sequence[str] | None) -> pl.DataFrame | None:
        """Return a file's rows, None where there is none; not to ask first saves a bucket's request."""
        try:
            return read_frame(self.root, file, self.schema, columns)
        except Missing as error:
            if self.manifest and self.manifest.seal(file):
                raise self._lost(file) from error
            return None

    def _lost(self, file: str) -> StorageError:
        msg = f"{self.root.at(file)} is missing: run `skillery doctor --root {self.root.uri}`"
        return StorageError(msg)

    def read_sealed(self, doc_id: str, columns: Sequence[str], most: int) -> pl.DataFrame | None:
        """Return columns of the partition that a document lies in, if its file is as it was written.

        Polars reads them: it loads sooner than Arrow, but aborts the process on bits that were flipped. None
        where the file is on another machine, larger than `most` bytes, damaged, or without a seal.
        """
        file = self.file(partition_of(doc_id))
        place = self.root.folder / file
        if self.manifest is None or not place.is_file() or place.stat().st_size > most:
            return None
        seal, data = self.manifest.seal(file), self.root.read(file)
        return pl.read_parquet(BytesIO(data), columns=[*columns]) if seal and seal.fits(data) else None

    def of(self, doc_id: str) -> pl.DataFrame:
        """Return the rows of the partition that this document lies in."""
        return self.read([partition_of(doc_id)])

    def of_document(self, doc_id: str) -> pl.DataFrame:
        """Return the rows of one document, in the order in which they were written."""
        return self.of(doc_id).filter(self._document == doc_id)

    def replace(self, doc_ids: Collection[str], rows: pl.DataFrame) -> None:
        """Remove every row of `doc_ids`, add `rows` (whose documents must be among them).

        Only the partitions that these documents lie in are rewritten, each in one step. Other columns are
        SchemaMismatch, other documents ValueError.
        """
        check_schema(self.folder, rows, self.schema)
        strangers = set(rows.select(self._document).to_series().unique()) - set(doc_ids)
        if strangers:
            msg = f"{self.folder}: rows of {sorted(strangers)[:3]} are not among the documents replaced"
            raise ValueError(msg)
        gone = defaultdict[int, list[str]](list)
        for doc_id in sorted(set(doc_ids)):
            gone[partition_of(doc_id)].append(doc_id)
        new = _by_partition(rows, rows.select(self._document).to_series())

        def rewrite(partition: int) -> None:
            named = self._document.is_in(gone[partition])
            self._rewrite(partition, lambda old: old.filter(~named), new.get(partition, rows.clear()))

        self.root.each(rewrite, gone, spread=True)

    def upsert(self, rows: pl.DataFrame) -> None:
        """Put rows in place of those with the same values in the `unique` columns; the last of these counts.

        Other rows of their documents stay.
        """
        rows = rows.unique(self._unique, keep="last", maintain_order=True)
        new = _by_partition(rows, rows.select(self._document).to_series())

        def rewrite(partition: int) -> None:
            here = new[partition]

            def others(old: pl.DataFrame) -> pl.DataFrame:
                return old.join(here, self._unique, "anti", nulls_equal=True, maintain_order="left")

            self._rewrite(partition, others, here)

        self.root.each(rewrite, new, spread=True)

    def _rewrite(
        self, partition: int, keep: Callable[[pl.DataFrame], pl.DataFrame], new: pl.DataFrame
    ) -> None:
        old = self._frame(self.file(partition), None)
        kept = None if old is None else keep(old)
        if new.is_empty() and (old is None or kept is None or kept.height == old.height):
            return
        self.put(partition, new if kept is None else pl.concat([kept, new]))

    def put(self, partition: int, rows: pl.DataFrame) -> None:
        """Write a partition's rows in place of those that it has, and list the file in the manifest."""
        data = write_frame(self.root, self.file(partition), rows, self.schema)
        if self.manifest is not None:
            list_file(self.root, self.file(partition), rows.height, data)

    def drop(self) -> None:
        """Remove the table with its seals; these go first, or its files would count as lost."""
        for folder in (f"{_MANIFESTS}/{self.folder}", self.folder):
            self.root.delete(folder)


class Manifest:
    """A seal for each file of a table, each in a note: partitions are written by several processes.

    A note is written after its file. If a run is killed in between, it describes the file before.
    """

    def __init__(self, root: Root, folder: str) -> None:
        self._root, self._folder = root, folder

    def files(self) -> set[str]:
        """Return the files that were written and not forgotten."""
        listed = self._root.files(f"{_MANIFESTS}/{self._folder}", ".json")
        return {entry.removeprefix(f"{_MANIFESTS}/").removesuffix(".json") for entry in listed}

    def seal(self, file: str) -> Seal | None:
        """Return a file's seal, None if none was written, or the file forgotten."""
        note = self._root.read_json(_entry(file))
        return None if note is None else Seal.told(file, note)

    def rows(self, files: Iterable[str] | None = None) -> int | None:
        """Return how many rows the files, or those named, have by their seals; None where one is damaged."""
        try:
            seals = self._root.each(self.seal, self.files() if files is None else files)
        except (StorageError, UnicodeDecodeError):
            return None
        return sum(seal.rows or 0 for seal in seals if seal)

    def digest(self) -> str | None:
        """Return what is another one as soon as any file of the table is, by the seals: no file is read.

        None where a file has no seal that can be read.
        """
        files = sorted(self.files() | set(self._root.files(self._folder, ".parquet")))
        try:
            notes = self._root.each(self._root.read_json, map(_entry, files))
        except (StorageError, UnicodeDecodeError):
            return None
        seals = [note and note.get("sha256") for note in notes]
        named = repr([*zip(files, seals, strict=True)])
        return hashlib.sha256(named.encode()).hexdigest() if all(seals) else None

    def adopt(self, file: str, rows: int) -> str | None:
        """Compare a readable file with its seal, and seal it as it is; return what differed.

        A file without a seal, of a root made by an earlier version, gets one; this is no difference.
        """
        data = self._root.read(file)
        try:
            seal = self.seal(file)
        except (StorageError, UnicodeDecodeError):
            seal = None
        if seal is not None and seal.rows == rows and seal.fits(data):
            return None
        list_file(self._root, file, rows, data)
        if seal is None:
            return None
        return f"{self._root.at(file)} is not the file last written: {rows} rows, not {seal.rows}"


def list_file(root: Root, file: str, rows: int, data: bytes) -> None:
    """Seal a table's file that was written (relative to the root): its bytes, and their number of rows."""
    root.write_json(_entry(file), Seal.of(file, data, rows).note())


def renew_entry(root: Root, file: str, rows: int, data: bytes) -> None:
    """Seal a file that was rewritten in place, if it had a seal."""
    if root.exists(_entry(file)):
        list_file(root, file, rows, data)


def missing_files(root: Root) -> list[str]:
    """Return the files that a manifest lists and that are not there, of every table, backfills included."""
    below = [file for file in root.files("backfill", ".json") if f"/{_MANIFESTS}/" in file]
    entries = [*root.files(_MANIFESTS, ".json"), *below]
    files = [entry.replace(f"{_MANIFESTS}/", "", 1).removesuffix(".json") for entry in entries]
    folders = sorted({file.rpartition("/")[0] for file in files})
    there = set(itertools.chain.from_iterable(root.each(root.files, folders)))
    return [file for file in files if file not in there]


def forget_entry(root: Root, file: str) -> None:
    """Remove the entry of a file; call it before the file is removed, or the file counts as lost."""
    root.delete(_entry(file))


def _entry(file: str) -> str:
    """Return the path of a file's entry; the tables of a backfill have theirs below its folder."""
    parts = file.split("/")
    base = parts[:2] if parts[0] == "backfill" else []
    return "/".join([*base, _MANIFESTS, *parts[len(base) :]]) + ".json"
