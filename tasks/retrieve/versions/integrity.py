"""The integrity of a published version: whether every row and each leg can be read, and no file has changed.

Lance checks no checksum when it reads, so a flipped bit would be served: the files of the tables are sealed.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import StorageError
from storage.lance.served import Served
from storage.lance.tables import INDUCED, KEYS, NODES, SKILLS, TABLES, TableAt, is_damage
from storage.root import Root
from storage.schemas import content_hash
from storage.seal import first_broken, seals_of
from tasks.models.token_states import require_packed
from tasks.retrieve.index.stored_nodes import misplaced
from tasks.retrieve.routing.search import rank_dense

FILE = "state/file-digests.json"
_LAST = 2**64 - 1
# What a version is read from; each is written once and never changed. Transactions are read by writers alone.
_KEPT = ("data", "_indices", "_deletions", "_versions")


def open_tables(root: Root, version: Served) -> dict[str, TableAt]:
    """Return a version's tables by name.

    Raises `StorageError` if a table, the version of it, or the encoder's export is gone.
    """
    path = str(version.model.get("path"))
    if not root.exists(path):
        raise StorageError(f"{version.version} cannot be served: its encoder {root.at(path)} is gone")
    tables = version.tables_at(root)
    for table in tables.values():
        table.count()
    return tables


def require_intact(root: Root, version: Served) -> None:
    """Read and check every row of a version's tables, batch by batch, and query each index once.

    Raises `StorageError` if a part of it is gone, is damaged, or contradicts the rest.
    """
    tables = open_tables(root, version)
    for name, table in tables.items():
        try:
            _read_rows(name, table, tables[SKILLS])
            if (first := table.first()) is not None:
                _query_indices(name, table, first)
        except Exception as error:
            if not is_damage(error):
                raise
            reason = str(error).splitlines()[0]
            msg = f"{version.version} cannot be read: table {name} at version {table.version} ({reason})"
            raise StorageError(msg) from error


def _read_rows(name: str, table: TableAt, skills: TableAt) -> None:
    rows = _checked(name, table)
    if name != NODES:
        deque(rows, maxlen=0)  # reads every row, and keeps none
        return
    # Skills and nodes are written apart: each node must stand in the body that is served with it.
    for node_id in misplaced(skills, rows):
        raise ValueError(f"node {node_id} is not what stands in the text of its skill")


def _checked(name: str, table: TableAt) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows, if texts have their hashes, vectors unit length, and states their full size."""
    for batch in table.batches():
        column = batch.column("vector")
        vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        if not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3):
            raise ValueError("a vector is not of unit length")
        if "states" in batch.schema.names:
            require_packed(pc.binary_length(batch.column("states")).drop_null().to_pylist())
        if name == SKILLS:
            _require_bodies(batch)
        if name == INDUCED:
            from tasks.retrieve.suggest.stored import require_records  # noqa: PLC0415 (loads what induces)

            require_records(batch)
        yield batch


def _require_bodies(skills: pa.RecordBatch) -> None:
    names = ("doc_id", "name", "description", "text", "body_start", "body_hash", "content_hash")
    columns = (skills.column(name).to_pylist() for name in names)
    for doc_id, name, description, text, start, body_hash, content in zip(*columns, strict=True):
        body = text[start:]
        held = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        if held != body_hash or content_hash(name, description, body) != content:
            raise ValueError(f"the text of {doc_id} is not what its hash says")


def _query_indices(name: str, table: TableAt, row: dict[str, Any]) -> None:
    key = KEYS[name] if name == INDUCED else "doc_id"
    if table.first([key], **{key: [row[key]]}) is None:
        raise ValueError(f"the index of ids does not find {row[key]}")
    if name == SKILLS:
        rank_dense(table, row["vector"], 1)


def seal_tables(root: Root, new: Served | None = None) -> None:
    """Record the SHA-256 of files of the tables that have none yet, and drop entries of files that are gone.

    The manifests of a version that is `new` are recorded again: one of a table that was deleted may have had
    their names. Of a bucket nothing is recorded: its service checks what it holds.
    """
    if root.uri != str(root.folder):
        return
    known = known_digests(root)
    for name, at in new.tables().items() if new else ():
        for file in _files(root, name, "_versions"):
            if number_of(file) == at:
                known.pop(file, None)
    files = {file for name in TABLES for kind in _KEPT for file in _files(root, name, kind)}
    now = {file: known.get(file) or root.sha256(file) for file in sorted(files)}
    if now != known_digests(root):
        root.write_json(FILE, now)


def changed_file(root: Root, version: Served) -> str | None:
    """Return a file that a version is read from and that is not as it was written; None if there is none.

    Raises `StorageError` if a file or the record of digests cannot be read.
    """
    seals = {seal.path: seal for seal in seals_of(known_digests(root))}
    read = (file for name, at in version.tables().items() for file in _read_by(root, name, at))
    return first_broken(root, (seals[file] for file in read if file in seals))


def _read_by(root: Root, name: str, at: int) -> Iterator[str]:
    """Yield the files that a version of a table is read from: its manifest names them."""
    for file in _files(root, name, "_versions"):
        if number_of(file) == at:
            manifest = root.read(file)
            yield file
            break
    else:
        return  # whoever opens the table says so
    for file in (f for kind in _KEPT[:-1] for f in _files(root, name, kind)):
        path = PurePosixPath(file)
        if "/_indices/" in file:
            named = uuid.UUID(path.parent.name).bytes in manifest
        else:  # names of deletions are put together from numbers: all are looked at
            named = "/_deletions/" in file or path.name.encode() in manifest
        if named:
            yield file


def number_of(file: str) -> int | None:
    """Return the version of a manifest, whose name Lance counts down so that the newest sorts first."""
    stem = PurePosixPath(file).stem
    number = int(stem) if stem.isdecimal() else None
    return _LAST - number if number is not None and number > _LAST // 2 else number


def _files(root: Root, name: str, kind: str) -> list[str]:
    suffix = ".manifest" if kind == "_versions" else ""  # a hint beside them is rewritten
    return root.files(f"lance/{name}.lance/{kind}", suffix)


def known_digests(root: Root) -> dict[str, str]:
    """Return the digests recorded, by file; `StorageError` if the record has another shape."""
    found = root.read_json(FILE) or {}
    if not all(isinstance(digest, str) for digest in found.values()):
        raise StorageError(f"{root.at(FILE)} is damaged: `skillery doctor --root {root.uri}` removes it")
    return found
