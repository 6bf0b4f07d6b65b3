"""Retention: which published versions are kept, and which cached vectors, states and second looks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from storage.errors import StorageError
from storage.lance import MARGIN, NODES, SKILLS, connect, prune, table_names
from storage.root import Root
from storage.served import Served, drop_published, published_versions, require_served
from storage.state import documents_table, nodes_table, parsed_table
from storage.vectors import FOLDER, STATES, state_stores, text_hash, vector_stores
from tasks.models.cached_encoder import kept_states, vectors_of
from tasks.parse.classify.cascade import LOOKS, looks_of
from tasks.retrieve.index.rows import skill_texts

log = logging.getLogger(__name__)
# A reader that has just read the pointer, or a batch of queries, may hold a version for this long.
_IN_USE = timedelta(hours=24)
# Cached vectors per text of the corpus above which unused ones are dropped: that reads every text.
_MOST_PER_TEXT = 1.25


def retain_versions(root: Root, keep: int, *, now: datetime) -> list[str]:
    """Drop all published versions but the last ones; return the names of those dropped.

    The served version stays, however old, and so does each that was published less than 24 hours ago.

    Args:
        root: Where they lie; the caller holds its writer lock.
        keep: How many stay, at least 1.
        now: The time.

    Raises:
        NotPublished: Nothing is served.
        StorageError: A record or a table cannot be read; no version that stays has been touched.
    """
    served, versions = require_served(root), published_versions(root)
    fresh = [v for v in versions[keep:] if now - v.published_at < _IN_USE]
    kept = [*versions[:keep], *fresh, served]
    gone = [v.version for v in versions if v not in kept]
    if gone:
        _prune_tables(root, kept, gone)
        # Records go last: the next run finds them after a prune that was killed.
        for version in gone:
            drop_published(root, version)
    return gone


def clean_tables(root: Root, margin: timedelta = MARGIN) -> None:
    """Remove the files of versions that were never published: refused and killed runs leave them.

    Args:
        root: Where they lie; the caller holds its writer lock.
        margin: How much older than every published version a version must be to be removed.

    Raises:
        NotPublished: Nothing is served.
        StorageError: A table cannot be read.
    """
    _prune_tables(root, [*published_versions(root), require_served(root)], [], margin)


def _prune_tables(
    root: Root, kept: Sequence[Served], gone: Collection[str], margin: timedelta = MARGIN
) -> None:
    db = connect(root)
    versions = {SKILLS: {v.skills for v in kept}, NODES: {v.nodes for v in kept if v.nodes is not None}}
    for name in table_names(db):
        if name in versions:
            prune(db, name, versions[name], gone, margin)


def bound_vectors(root: Root, card: dict[str, Any]) -> int:
    """Drop vectors and states of other encoders, and unused ones once they are a quarter more than texts.

    Args:
        root: Where they lie; the caller holds its writer lock.
        card: The card of the encoder in use.

    Returns:
        How many vectors of this encoder were dropped.
    """
    vectors, states = vectors_of(root, card), kept_states(root, card)
    for other in (*vector_stores(root), *state_stores(root)):
        if other.folder not in (vectors.folder, states.folder):
            other.delete()
    nodes = _node_count(root)
    texts = nodes + documents_table(root).read(columns=["doc_id"]).height
    too_many = [s for s, n in ((vectors, texts), (states, nodes)) if len(s) > _MOST_PER_TEXT * n]
    used = texts_in_use(root) if too_many else set()
    dropped = {store.folder: store.keep_only(used) for store in too_many}
    return dropped.get(vectors.folder, 0)


def bound_looks(root: Root) -> None:
    """Drop second looks of other context models, and all of them once they outnumber the corpus's nodes.

    A quarter of the nodes gets a second look. Its key holds a context that is stored nowhere, so unused looks
    cannot be told; a look that was dropped is computed again if its document changes.
    """
    store = looks_of(root)
    for file in root.files(LOOKS):
        if not file.startswith(f"{store.folder}/"):
            root.delete(file)
    if len(store) > _node_count(root):
        store.delete()


def _node_count(root: Root) -> int:
    return int(parsed_table(root).read(columns=["n_nodes"])["n_nodes"].sum())


def drop_unused_vectors(root: Root) -> int:
    """Drop vectors and states of texts that no node and no skill holds; return how many vectors.

    If corpus or caches cannot be read, all of them are dropped: they are computed again when needed.
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


def texts_in_use(root: Root) -> set[bytes]:
    """Return the hashes of all texts that an index of this corpus encodes.

    Raises:
        StorageError: The corpus cannot be read.
    """
    nodes = nodes_table(root).read(columns=["text"])["text"]
    skills = skill_texts(documents_table(root).read(columns=["name", "description"]))
    return {text_hash(text) for texts in (nodes, skills) for text in texts}
