"""Retention: which versions, vectors and blobs stay; and the compaction of the served tables."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from storage.blobs import drop_unused_blobs
from storage.errors import StorageError
from storage.lance.served import Served, drop_published, published_versions, require_served
from storage.lance.tables import INDUCED, KEYS, NODES, SKILLS, TABLES, TableAt, TableWriter
from storage.lance.versions import MARGIN, prune, table_names
from storage.partitions import Manifest
from storage.root import Root
from storage.state import documents_table, nodes_table
from storage.vectors import FOLDER, STATES, state_stores, text_hash, vector_stores
from tasks.crawl.backfill import rebuilt_days
from tasks.models.cached_encoder import kept_states, vectors_of
from tasks.retrieve.index.build import Built, nodes_base, skill_texts
from tasks.retrieve.index.gate import Check

log = logging.getLogger(__name__)
_MOST_PER_TEXT = 1.25  # vectors per text of the corpus; only above that are unused ones looked for
# A reader that has just read the pointer, or a batch of queries, may use a version for so long.
_IN_USE = timedelta(hours=24)
# A night makes about five versions of a table, which share its files. Removing any writes all rows again:
# weekly compaction does it, or the night that finds those of two weeks.
_WORTH_IT = 70


def bound_vectors(root: Root, card: dict[str, Any]) -> int:
    """Drop vectors and token embeddings of encoders without this card, and unused ones if there are too many.

    Return the number of vectors of this encoder that were dropped.
    """
    vectors, states = vectors_of(root, card), kept_states(root, card)
    for other in (*vector_stores(root), *state_stores(root)):
        if other.folder not in (vectors.folder, states.folder):
            other.delete()
    nodes = Manifest(root, nodes_table(root).folder).rows() or 0
    texts = nodes + (Manifest(root, documents_table(root).folder).rows() or 0)
    # Which ones are in use is known only after reading every text.
    too_many = [s for s, n in ((vectors, texts), (states, nodes)) if len(s) > _MOST_PER_TEXT * n]
    used = texts_in_use(root) if too_many else set()
    dropped = {store.folder: store.keep_only(used) for store in too_many}
    return dropped.get(vectors.folder, 0)


def drop_unused_vectors(root: Root) -> int:
    """Drop vectors and token embeddings of texts that no node or skill has; return the number of vectors.

    If the corpus or the stores cannot be read, all of them are dropped; they are computed again when needed.
    """
    try:
        used = texts_in_use(root)
        for states in state_stores(root):
            states.keep_only(used)
        return sum(store.keep_only(used) for store in vector_stores(root))
    except StorageError as error:
        log.warning("all kept vectors and states are dropped: %s", error)
        root.delete(FOLDER)
        root.delete(STATES)
        return 0


def drop_blobs(root: Root) -> int:
    """Remove blobs that no document names, here and in the corpora of past days; return how many.

    Raises `StorageError` if a corpus cannot be read; its blobs stay.
    """
    return sum(drop_unused_blobs(place) for place in (root, *rebuilt_days(root)))


def texts_in_use(root: Root) -> set[bytes]:
    """Return the hashes of all texts that an index of this corpus encodes.

    Raises `StorageError` if the corpus cannot be read.
    """
    nodes = nodes_table(root).read(columns=["text"])["text"]
    skills = skill_texts(documents_table(root).read(columns=["name", "description"]))
    return {text_hash(text) for texts in (nodes, skills) for text in texts}


def retain_versions(root: Root, keep: int, *, now: datetime) -> list[str]:
    """Remove all published versions but the last `keep`, 1 or more; return the names of those removed.

    The served version stays, however old, and so do versions of the last 24 hours, which a reader may use. Of
    each of the last `keep` states of skills and nodes the newest version stays too: learned skills are
    published more often than these change, and must not take the way back from a night. Raises `NotPublished`
    if nothing is served. Raises `StorageError` if a record or a table cannot be read; the versions that stay
    are untouched.
    """
    served, versions = require_served(root), published_versions(root)
    fresh = [v for v in versions[keep:] if now - v.published_at < _IN_USE]
    nights = list({(v.skills, v.nodes): v for v in reversed(versions)}.values())[-keep:]
    kept = [*versions[:keep], *fresh, *nights, served]
    gone = [v.version for v in versions if v not in kept]
    if gone:
        prune_tables(root, kept, gone, least=_WORTH_IT)
        # Last, so that a call after a kill finds them again.
        for version in gone:
            drop_published(root, version)
    return gone


def prune_tables(
    root: Root, kept: Collection[Served], gone: Collection[str], margin: timedelta = MARGIN, least: int = 1
) -> None:
    """Remove the table versions that no kept version needs, if there are `least`, and tags of those gone."""
    for name in sorted({*TABLES} & set(table_names(root))):
        at = (version.tables().get(name) for version in kept)
        prune(root, name, {version for version in at if version is not None}, gone, margin, least)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The rows, data files and bytes of one table, as served and as compacted."""

    table: str
    rows: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact_tables(root: Root) -> tuple[Built, list[Compacted]]:
    """Merge the small files of the served tables into new versions beside them; the served ones stay.

    Return the compacted versions (the served ones, not `changed`, if there was nothing to merge), and the
    sizes of each table. Raises `NotPublished` if nothing is served; `StorageError` if the served version
    cannot be opened.
    """
    served, found, changed = require_served(root), [], False
    versions = served.tables()
    rows: Counter[str] = Counter()
    for name, base in served.tables().items():
        before = TableAt(root, name, base)
        rows[name], (size, files) = before.count(), before.size()
        if files <= 1:  # a version that nobody needs would keep its files until the served one goes
            found.append(Compacted(name, rows[name], files, files, size, size))
            continue
        writer = TableWriter(root, name, before.schema, base)
        version = writer.finish(merge=True)
        size_after, files_after = writer.size()
        found.append(Compacted(name, rows[name], files, files_after, size, size_after))
        if files_after < files:
            versions[name], changed = version, True
    nodes = versions.get(NODES)
    built = Built(
        versions[SKILLS], nodes, rows[SKILLS], rows[NODES], 0, changed=changed,
        nodes_base=nodes or nodes_base(root, served), induced=versions.get(INDUCED),
    )  # fmt: skip
    return built, found


def check_compacted(root: Root, built: Built) -> list[Check]:
    """Check that compacted tables hold the same rows as the served ones, and index all of them."""
    # Compaction has corrupted tables before (LanceDB's issue 3744), so every row is compared.
    served, checks = require_served(root), []
    for name, base in served.tables().items():
        version = built.tables()[name]
        if version is None or version == base:
            continue
        made = TableAt(root, name, version)
        before, after = _row_digests(TableAt(root, name, base)), _row_digests(made)
        other = len(before.keys() ^ after.keys()) + sum(before[k] != after[k] for k in before.keys() & after)
        left = max(made.unindexed().values(), default=0)
        checks += [
            Check(f"{name}.rows_that_differ", passed=other == 0, value=other, limit=0),
            Check(f"{name}.unindexed_rows", passed=left == 0, value=left, limit=0),
        ]
    return checks


def _row_digests(table: TableAt) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for batch in table.batches():
        column = batch.column("vector")
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        for row, vector in zip(batch.drop_columns(["vector"]).to_pylist(), vectors, strict=True):
            said = repr(row).encode("utf-8", "surrogatepass") + vector.tobytes()
            found[row[KEYS[table.name]]] = hashlib.blake2b(said, digest_size=16).digest()
    return found


def clean_tables(root: Root, margin: timedelta = MARGIN) -> None:
    """Remove table versions that refused or killed runs left, if they are older than all published ones.

    They must be older by `margin` at least. Raises `NotPublished` if nothing is served; `StorageError` if a
    table cannot be read.
    """
    prune_tables(root, [*published_versions(root), require_served(root)], [], margin)


def table_files(root: Root) -> int:
    """Return the number of files of all tables, of every version."""
    return len(root.files("lance"))
