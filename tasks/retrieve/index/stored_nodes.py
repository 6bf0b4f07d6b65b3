"""Stored nodes: reads a served document's nodes, vectors and edges, and checks that they match the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from storage.errors import StorageError
from storage.lance.tables import TableAt
from storage.root import Root
from storage.schemas import Edge, Node
from storage.state import edges_table, parsed_table
from tasks.models.protocols import Vectors
from tasks.models.token_states import packing

if TYPE_CHECKING:  # its import takes a tenth of a query
    import pyarrow as pa

_COLUMNS = list(Node.__dataclass_fields__)
PLACED = ["node_id", "doc_id", "start", "end", "text"]  # columns that tell whether a node is of its skill
_AT_ONCE = 20_000  # nodes that one read of skills is compared with


def indexed_nodes(table: TableAt, doc_id: str) -> tuple[list[Node], Vectors, list[bytes] | None]:
    """Return a document's nodes in order, their vectors, shape `(nodes, dimension)`, and packed embeddings.

    Token embeddings are None in a table of an older version, or if they are packed in another way. Raises
    `StorageError` if a value that every node has is missing.
    """
    known = table.model.get("states") == packing()
    encoded = ["vector", "states"] if known else ["vector"]
    rows = table.rows([*_COLUMNS, *encoded], doc_id=[doc_id]).sort_by("ordinal")
    if missing := [name for name in rows.column_names if name != "lead_in" and rows.column(name).null_count]:
        msg = f"{doc_id}: nodes have no {', '.join(missing)}: the index is damaged"
        raise StorageError(f"{msg}, `skillery doctor` finds out how")
    column = rows.column("vector").combine_chunks()
    vectors: Vectors = np.asarray(column.flatten().to_numpy().reshape(rows.num_rows, column.type.list_size))
    # By column, because rows as dicts take three times as long.
    columns = {name: rows.column(name).to_pylist() for name in _COLUMNS}
    columns["heading_path"] = [tuple(path) for path in columns["heading_path"]]
    states = rows.column("states").to_pylist() if known else None
    return [Node(*fields) for fields in zip(*columns.values(), strict=True)], vectors, states


def stored_edges(root: Root, doc_id: str, nodes_digest: str | None) -> list[Edge] | None:
    """Return the edges that parse stored with the served nodes of a document, None if they do not fit.

    The corpus may be newer than the served version, or older after a rollback. The edges belong to the served
    nodes only if the document's parse still has `nodes_digest`, which its served row names.
    """
    if not nodes_digest:
        return None
    try:
        # Edges are read first: a writer blanks the digest before it replaces them, and sets it afterwards.
        rows = edges_table(root).of_document(doc_id)
        parsed = parsed_table(root).of_document(doc_id)
    except StorageError:
        return None
    known = [(digest, n) for digest, n in parsed.select("digest", "n_edges").iter_rows()]
    return [Edge(*row) for row in rows.iter_rows()] if known == [(nodes_digest, rows.height)] else None


def misplaced(skills: TableAt, nodes: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Yield the ids of nodes whose text does not stand at their place in the body of their skill's row.

    `nodes` are rows with the columns PLACED, `skills` is the table at the version served with them.
    """
    some: list[pa.RecordBatch] = []
    for batch in nodes:
        some.append(batch.select(PLACED))
        if sum(b.num_rows for b in some) >= _AT_ONCE:
            yield from _misplaced(skills, some)
            some = []
    if some:
        yield from _misplaced(skills, some)


def _misplaced(skills: TableAt, batches: list[pa.RecordBatch]) -> Iterator[str]:
    import pyarrow as pa  # noqa: PLC0415 (a page compares no nodes)

    rows = pa.Table.from_batches(batches)
    columns = ["doc_id", "text", "body_start"]
    found = skills.rows(columns, doc_id=rows.column("doc_id").unique().to_pylist())
    held = zip(*(found.column(c).to_pylist() for c in columns), strict=True)
    bodies = {doc_id: text[start:] for doc_id, text, start in held}
    # A node without a skill is never shown, so it does no harm.
    for node_id, doc_id, start, end, text in zip(*(rows.column(c).to_pylist() for c in PLACED), strict=True):
        if doc_id in bodies and bodies[doc_id][start:end] != text:
            yield node_id
