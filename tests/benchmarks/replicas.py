"""What benchmarks of growth share: a corpus replicated with words replaced, and memory as it is held.

In each replica 30 % of the words are replaced, the same by the same others wherever they stand, so that the
clusters of near-duplicates keep their sizes.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import threading
import zlib
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

REPLACED_PERCENT = 30
_WORD = re.compile(r"[^\W\d_]{2,}")
_SCHEMA = pa.schema([("id", pa.string()), ("content", pa.string())])
_HEAD = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def another(letter: str, replica: int) -> str:
    """Return what stands for a letter in a replica, from 1: one of a to z for one of them, however many."""
    if "a" <= letter <= "z":
        return chr(ord("a") + (ord(letter) - ord("a") + 1 + (replica - 1) % 25) % 26)
    return chr(ord(letter) + replica)


class Replaced(dict[str, str]):
    """What stands for each word in a replica: for 30 % another of the same length, else the word itself."""

    def __init__(self, replica: int) -> None:
        self.replica = replica

    def __missing__(self, word: str) -> str:
        chosen = zlib.crc32(f"{self.replica} {word}".encode()) % 100 < REPLACED_PERCENT
        shifted = "".join(another(letter, self.replica) for letter in word.lower())
        self[word] = shifted if chosen and _WORD.fullmatch(shifted) else word
        return self[word]

    def applied(self, content: str) -> str:
        """Return a text with its words replaced; the front matter stays as it is."""
        head = _HEAD.match(content)
        start = head.end() if head else 0
        return content[:start] + _WORD.sub(lambda match: self[match[0]], content[start:])


def replicate(corpus: Path, size: int, out: Path) -> None:
    """Write the corpus and as many replicas of it as make `size` documents."""
    count = -(-size // pq.read_metadata(corpus).num_rows)
    parts = [out.with_name(f"replica-{replica}.parquet") for replica in range(count)]
    spawned = get_context("spawn")  # a fork of a process with Polars in it may hang
    with (
        ProcessPoolExecutor(os.cpu_count(), spawned) as pool,
        pq.ParquetWriter(out, _SCHEMA, compression="zstd") as writer,
    ):
        deque(pool.map(replica_of, [corpus] * count, range(count), parts), maxlen=0)
        left = size
        for part in parts:
            table = pq.read_table(part, schema=_SCHEMA)[:left]
            writer.write_table(table, row_group_size=1000)
            left -= len(table)
            part.unlink()


def replica_of(corpus: Path, replica: int, out: Path) -> None:
    """Write the corpus with the words of a replica, 0 for its own."""
    rows, words = pl.read_parquet(corpus, columns=["id", "content"]), Replaced(replica)
    contents = [words.applied(content) if replica else content for content in rows["content"]]
    ids = [f"{doc_id}--{replica}" for doc_id in rows["id"]]
    pq.write_table(pa.table({"id": ids, "content": contents}, schema=_SCHEMA), out)


class PeakMemory(threading.Thread):
    """Watches the memory that this process and those it started hold together, ten times a second.

    What the system itself keeps of a process' peak will not do: it counts that of the process that started
    it, and the peaks of processes that run one after another cannot be added up. Pages that processes share
    count once a process. `own` says whether this process counts.
    """

    def __init__(self, *, own: bool = True) -> None:
        super().__init__(daemon=True)
        self.bytes, self._own, self._end = 0, [os.getpid()] if own else [], threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._end.set()
        self.join()

    def run(self) -> None:
        """Look until told to end."""
        while not self._end.wait(0.1):
            self.bytes = max(self.bytes, sum(map(resident, [*self._own, *children(os.getpid())])))


def children(process_id: int) -> list[int]:
    """Return the processes that one has started, and those that they have, which still run."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{process_id}/task").glob("*/children"):
            found += [int(pid) for pid in task.read_text().split()]
    return found + [pid for child in found for pid in children(child)]


def resident(process_id: int) -> int:
    """Return a process' resident memory in bytes; 0 where it has ended."""
    try:
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()
