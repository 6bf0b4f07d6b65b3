"""Placement of staged documents in their partitions, with 200 MB of them or a few partitions in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from storage.folder import threads_of_process
from storage.parquet import read_frame, write_frame
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import DOCUMENTS
from storage.state import documents_table, folded_table
from tasks.refine.plan import STAGED

SORTED = "state/staged/sorted"
_MAX_BYTES = 200_000_000
_AT_ONCE = 4  # partitions


class Arrivals:
    """Staged documents by partition; those that do not fit into memory lie in files sorted by partition."""

    def __init__(self, root: Root) -> None:
        self._root, self._written = root, defaultdict[int, list[str]](list)
        root.delete(SORTED)
        self._held = pl.DataFrame(schema=DOCUMENTS)
        waiting, size = [self._held], 0
        for number, file in enumerate(root.files(STAGED, ".parquet")):
            waiting.append(read_frame(root, file, DOCUMENTS))
            size += int(waiting[-1].estimated_size())
            if size > _MAX_BYTES:
                self._write(pl.concat(waiting), number)
                waiting, size = [self._held], 0
        self._held = pl.concat(waiting)
        self._partition = self._partitions(self._held)

    def of(self, partition: int) -> pl.DataFrame:
        """Return the documents of a partition."""
        files = self._written.get(partition, [])
        held = self._held.filter(self._partition == partition)
        return pl.concat([*(read_frame(self._root, file, DOCUMENTS) for file in files), held])

    def _partitions(self, frame: pl.DataFrame) -> pl.Series:
        return frame["doc_id"].map_elements(partition_of, return_dtype=pl.Int64)

    def _write(self, frame: pl.DataFrame, number: int) -> None:
        partitions = self._partitions(frame)
        for partition in partitions.unique().sort():
            file = f"{SORTED}/part-{partition:02d}/{number:06d}.parquet"
            write_frame(self._root, file, frame.filter(partitions == partition), DOCUMENTS)
            self._written[partition].append(file)


def place(root: Root, *, replaced: Collection[str], moved: Collection[str], copies: Collection[str]) -> None:
    """Update the tables of the corpus and of the copies beside it.

    Args:
        root: The root, with staged documents.
        replaced: Ids that leave the tables, or whose staged document is put there.
        moved: Ids that change tables with their document unchanged.
        copies: Ids that are copies now.
    """
    documents, folded, arrivals = documents_table(root), folded_table(root), Arrivals(root)
    replacing, moving = _by_partition(replaced), _by_partition(moved)

    def place_in(partition: int) -> None:
        rows, moves = arrivals.of(partition), moving.get(partition, set())
        if moves:
            held = pl.concat([documents.read([partition]), folded.read([partition])]).unique("doc_id")
            rows = pl.concat([rows, held.filter(pl.col("doc_id").is_in(list(moves)))])
        ids = replacing.get(partition, set()) | moves
        beside = ids.intersection(copies)
        # A document enters one table before it leaves the other, in case this run is killed in between.
        folded.replace(beside, rows.filter(pl.col("doc_id").is_in(list(beside))))
        documents.replace(ids, rows.filter(~pl.col("doc_id").is_in(list(beside))))
        folded.replace(ids - beside, rows.clear())

    with ThreadPoolExecutor(min(_AT_ONCE, threads_of_process())) as pool:
        list(pool.map(place_in, sorted(replacing.keys() | moving.keys())))


def _by_partition(doc_ids: Collection[str]) -> Mapping[int, set[str]]:
    found = defaultdict[int, set[str]](set)
    for doc_id in doc_ids:
        found[partition_of(doc_id)].add(doc_id)
    return found
