"""Reads stored nodes, with their vectors and edges, and finds nodes that do not fit their skills."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence

import lancedb
import numpy as np
import polars as pl
import pyarrow as pa

from storage.errors import StorageError
from storage.lance import quoted
from storage.partitions import partition_of
from storage.root import Root
from storage.schemas import Edge, Node
from storage.state import edges_table, nodes_table, parsed_table
from tasks.models.protocols import Vectors
from tasks.models.token_states import packing

log = logging.getLogger(__name__)
_COLUMNS = list(Node.__dataclass_fields__)
_MAY_BE_NULL = ("lead_in",)
PLACED = ["node_id", "doc_id", "start", "end", "text"]  # the columns that `misplaced` compares
_AT_ONCE = 20_000  # nodes whose skills are read together


def indexed_nodes(table: lancedb.table.Table, doc_id: str) -> tuple[list[Node], Vectors, list[bytes] | None]:
    """Return a document's nodes in order, their vectors, shape `(nodes, dimension)`, and packed states.

    States are None where the table has none, or packs them in another way.

    Raises:
        StorageError: A value that every node has is missing.
    """
    known = json.loads((table.schema.metadata or {}).get(b"model", b"{}")).get("states") == packing()
    encoded = ["vector", "states"] if known else ["vector"]
    chosen = table.search().where(f"doc_id IN ({quoted([doc_id])})").select([*_COLUMNS, *encoded])
    rows = chosen.to_arrow().sort_by("ordinal")
    gaps = [n for n in rows.column_names if n not in _MAY_BE_NULL and rows.column(n).null_count]
    if gaps:
        msg = f"{doc_id}: nodes have no {', '.join(gaps)}: the index is damaged"
        raise StorageError(f"{msg}, `skillery doctor` finds out how")
    column = rows.column("vector").combine_chunks()
    vectors: Vectors = np.asarray(column.flatten().to_numpy().reshape(rows.num_rows, column.type.list_size))
    # By column: rows of dicts take three times as long.
    columns = {name: rows.column(name).to_pylist() for name in _COLUMNS}
    columns["heading_path"] = [tuple(path) for path in columns["heading_path"]]
    states = rows.column("states").to_pylist() if known else None
    return [Node(*fields) for fields in zip(*columns.values(), strict=True)], vectors, states


def stored_edges(root: Root, nodes: Sequence[Node], digest: str | None) -> list[Edge] | None:
    """Return the edges that parse stored for exactly these nodes, None where `edges/` holds others or none.

    The tables below `root` may be of another night than the version that is served. They belong to its nodes
    if the document was parsed with the same digest (of rules, encoder and body) into the same typed nodes.

    Args:
        root: Where `nodes/`, `edges/` and `state/parsed` lie.
        nodes: All nodes of one document, in order.
        digest: `nodes_digest` of the document's row in `skills`.
    """
    if not nodes or "+" not in (digest or ""):  # only a parse with vectors stores semantic edges
        return None
    partition, ids = [partition_of(nodes[0].doc_id)], [node.node_id for node in nodes]
    try:
        edges = edges_table(root).read(partition).filter(pl.col("src_id").is_in(ids))
        typed = nodes_table(root).read(partition, ["node_id", "node_type"])
        # Parse clears the digest before it writes and sets it last: read last, it covers what was read.
        parsed = parsed_table(root).read(partition)
    except StorageError as error:
        log.warning("edges are inferred, the stored ones cannot be read: %s", error)
        return None
    counts = dict(parsed.filter(doc_id=nodes[0].doc_id).select("digest", "n_edges").iter_rows())
    types = [(node.node_id, node.node_type) for node in nodes]
    same = digest in counts and typed.filter(pl.col("node_id").is_in(ids)).rows() == types
    # A partition that was lost is empty until the next run.
    there = edges.height > 0 or counts.get(digest) == 0
    fits = same and there and edges["dst_id"].is_in(ids).all()
    return [Edge(*row) for row in edges.iter_rows()] if fits else None


def misplaced(skills: lancedb.table.Table, nodes: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Yield the ids of nodes whose text does not stand at their place in the body of their skill.

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
        # A node without a skill is never shown.
        if doc_id in bodies and bodies[doc_id][start:end] != text:
            yield node_id
