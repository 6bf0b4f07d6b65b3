"""Stored nodes: reads a served document's nodes, vectors and edges, and checks that they match the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import lancedb
import numpy as np
import pyarrow as pa

from storage.errors import StorageError
from storage.lance import quoted
from storage.root import Root
from storage.schemas import Edge, Node
from storage.state import edges_table, parsed_table
from tasks.models.protocols import Vectors
from tasks.models.token_states import packing

_COLUMNS = list(Node.__dataclass_fields__)
_MAY_BE_NULL = ("lead_in",)
PLACED = ["node_id", "doc_id", "start", "end", "text"]  # what tells whether a node is of its skill
_AT_ONCE = 20_000  # nodes that are compared with their skills in one read of these


def indexed_nodes(table: lancedb.table.Table, doc_id: str) -> tuple[list[Node], Vectors, list[bytes] | None]:
    """Return a document's nodes in order, their vectors, shape `(nodes, dimension)`, and packed states.

    A table of an older version, or one whose states are packed in another way, has none.

    Raises:
        StorageError: A value that every node has is missing.
    """
    known = json.loads((table.schema.metadata or {}).get(b"model", b"{}")).get("states") == packing()
    encoded = ["vector", "states"] if known else ["vector"]
    chosen = table.search().where(f"doc_id IN ({quoted([doc_id])})").select([*_COLUMNS, *encoded])
    rows = chosen.to_arrow().sort_by("ordinal")
    if missing := [name for name in rows.column_names if _gaps(rows.column(name), name)]:
        msg = f"{doc_id}: nodes have no {', '.join(missing)}: the index is damaged"
        raise StorageError(f"{msg}, `skillery doctor` finds out how")
    column = rows.column("vector").combine_chunks()
    vectors: Vectors = np.asarray(column.flatten().to_numpy().reshape(rows.num_rows, column.type.list_size))
    # By column: rows of dicts take three times as long.
    columns = {name: rows.column(name).to_pylist() for name in _COLUMNS}
    columns["heading_path"] = [tuple(path) for path in columns["heading_path"]]
    states = rows.column("states").to_pylist() if known else None
    return [Node(*fields) for fields in zip(*columns.values(), strict=True)], vectors, states


def stored_edges(root: Root, doc_id: str, nodes_digest: str | None) -> list[Edge] | None:
    """Return the edges that parse stored with the served nodes of a document; None: there are none to read.

    The corpus may be ahead of what is served, or behind it after a rollback. Edges belong to the served nodes
    only if the document's parse still has the digest that its served row names.

    Args:
        root: The root that holds `edges/` and `state/parsed`.
        doc_id: The id of a served document.
        nodes_digest: The digest of the parse that made the served nodes, from the document's served row.
    """
    if not nodes_digest:
        return None
    try:
        # Edges first: a writer blanks the digest before it replaces them, and sets it afterwards.
        rows = edges_table(root).of_document(doc_id)
        parsed = parsed_table(root).of_document(doc_id)
    except StorageError:
        return None
    known = [(digest, n) for digest, n in parsed.select("digest", "n_edges").iter_rows()]
    return [Edge(*row) for row in rows.iter_rows()] if known == [(nodes_digest, rows.height)] else None


def _gaps(column: pa.ChunkedArray, name: str) -> bool:
    return column.null_count > 0 and name not in _MAY_BE_NULL


def misplaced(skills: lancedb.table.Table, nodes: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Yield the ids of nodes whose text does not stand at their place in the body of their skill's row.

    Skills are read by their ids, many at once.

    Args:
        skills: The table, at the version that is served with these nodes.
        nodes: Rows of the table `nodes`, with the columns PLACED.
    """
    some: list[pa.RecordBatch] = []
    for batch in nodes:
        some.append(batch.select(PLACED))
        if sum(b.num_rows for b in some) >= _AT_ONCE:
            yield from _misplaced(skills, some)
            some = []
    if some:
        yield from _misplaced(skills, some)


def _misplaced(skills: lancedb.table.Table, batches: list[pa.RecordBatch]) -> Iterator[str]:
    rows = pa.Table.from_batches(batches)
    ids = quoted(rows.column("doc_id").unique().to_pylist())
    columns = ["doc_id", "text", "body_start"]
    found = skills.search().where(f"doc_id IN ({ids})").select(columns).to_arrow()
    held = zip(*(found.column(c).to_pylist() for c in columns), strict=True)
    bodies = {doc_id: text[start:] for doc_id, text, start in held}
    for node_id, doc_id, start, end, text in zip(*(rows.column(c).to_pylist() for c in PLACED), strict=True):
        if doc_id in bodies and bodies[doc_id][start:end] != text:  # without a skill none is ever shown
            yield node_id
