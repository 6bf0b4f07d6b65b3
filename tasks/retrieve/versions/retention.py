"""Retention of the cache: vectors and token embeddings live as long as a node or skill holds their text."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import lancedb

from storage.errors import StorageError
from storage.lance import NODES, SKILLS, connect, prune, table_names
from storage.root import Root
from storage.served import Served, drop_published, published_versions, require_served
from storage.state import documents_table, nodes_table, parsed_table
from storage.vectors import FOLDER, STATES, state_stores, text_hash, vector_stores
from tasks.models.cached_encoder import kept_states, vectors_of
from tasks.parse.classify.cascade import LOOKS, looks_of
from tasks.retrieve.index.rows import skill_texts

log = logging.getLogger(__name__)
# Vectors a text in the corpus, from which on the unused ones are looked for: looking reads every text.
_MOST_PER_TEXT = 1.25


def bound_vectors(root: Root, card: dict[str, Any]) -> int:
    """Drop other encoders' vectors and states, and unused ones where there are a quarter more than texts.

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
    nodes = int(parsed_table(root).read(columns=["n_nodes"])["n_nodes"].sum())
    texts = nodes + documents_table(root).read(columns=["doc_id"]).height
    too_many = [s for s, n in ((vectors, texts), (states, nodes)) if len(s) > _MOST_PER_TEXT * n]
    used = texts_in_use(root) if too_many else set()
    dropped = {store.folder: store.keep_only(used) for store in too_many}
    return dropped.get(vectors.folder, 0)


def bound_looks(root: Root) -> None:
    """Drop what other context models found, and all where more is kept than the corpus has nodes.

    A quarter of the nodes gets a second look, whose context is nowhere else: which looks are in use is not
    known. What is dropped is taken again for documents that change.
    """
    store = looks_of(root)
    for file in root.files(LOOKS):
        if not file.startswith(f"{store.folder}/"):
            root.delete(file)
    if len(store) > int(parsed_table(root).read(columns=["n_nodes"])["n_nodes"].sum()):
        store.delete()


def drop_unused_vectors(root: Root) -> int:
    """Drop vector and states of texts that neither node nor skill holds; return how many vectors went.

    Where the corpus or what is kept cannot be read, all of it goes: it is made anew when needed.
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


# A reader that has just read the pointer, or a batch of questions, may hold a version for so long.
_IN_USE = timedelta(hours=24)


def retain_versions(root: Root, keep: int, *, now: datetime) -> list[str]:
    """Let go of all published versions but the last ones; return the names of those that went.

    What is served stays, however old; so does what was published within a day, which a reader may hold.

    Args:
        root: Where they lie; the caller holds its writer lock.
        keep: How many stay, at least 1.
        now: The time.

    Raises:
        NotPublished: Nothing is served.
        StorageError: A record or a table cannot be read; nothing that is kept has been touched.
    """
    served, versions = require_served(root), published_versions(root)
    fresh = [v for v in versions[keep:] if now - v.published_at < _IN_USE]
    kept = [*versions[:keep], *fresh, served]
    gone = [v.version for v in versions if v not in kept]
    if gone:
        db = connect(root)
        for name in table_names(db):
            _prune(db, name, kept, gone)
        # Last: a prune that was killed finds them again.
        for version in gone:
            drop_published(root, version)
    return gone


def _prune(db: lancedb.DBConnection, name: str, kept: Iterable[Served], gone: list[str]) -> None:
    if name in (SKILLS, NODES):
        at = {v.skills if name == SKILLS else v.nodes for v in kept}
        prune(db, name, {version for version in at if version is not None}, gone)
