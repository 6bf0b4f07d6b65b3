"""Embedding of skills that an index build will ask for, in batches that may run anywhere."""

from __future__ import annotations

from collections import Counter

import polars as pl

from storage.lance import SKILLS, connect, open_at
from storage.partitions import partition_of
from storage.root import Root
from storage.served import read_served
from storage.state import documents_table
from tasks.models.protocols import IndexEncoder
from tasks.retrieve.index.rows import desired_rows, model_identity, skill_texts

_DOCUMENTS_PER_BATCH = 1000


def plan_embedding(root: Root, *, encoder: IndexEncoder) -> list[list[int]]:
    """Return partitions that hold skills without a row of this encoder in what is served, in batches.

    Args:
        root: Where corpus and tables lie.
        encoder: What will encode them; only its card is asked for.
    """
    wanted = desired_rows(root, model_identity(encoder.card))
    served = read_served(root)
    if served is not None:
        rows = open_at(connect(root), SKILLS, served.skills).search().select(["digest"]).to_arrow()
        wanted = wanted.filter(~pl.col("wanted").is_in(rows.column("digest").to_pylist()))
    counts = Counter(map(partition_of, wanted["doc_id"]))
    batches: list[list[int]] = []
    room = 0
    for partition, count in sorted(counts.items()):
        if room <= 0:
            batches.append([])
            room = _DOCUMENTS_PER_BATCH
        batches[-1].append(partition)
        room -= count
    return batches


def embed_partitions(root: Root, partitions: list[int], *, encoder: IndexEncoder) -> int:
    """Encode name and description of every skill in these partitions; return how many there are.

    Args:
        root: Where the corpus lies.
        partitions: Partitions, 0 to 63.
        encoder: Keeps what it encodes, and encodes no text twice.
    """
    texts = skill_texts(documents_table(root).read(partitions, ["name", "description"]))
    encoder.encode(texts)
    return len(texts)
