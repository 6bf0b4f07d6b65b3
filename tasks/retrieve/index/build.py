"""Builds the next version of the tables `skills` and `nodes` out of the corpus: only what changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from storage.lance import (
    INDUCED,
    NODES,
    SKILLS,
    TableWriter,
    connect,
    open_at,
    schema_of,
    versions_of,
)
from storage.partitions import partition_of
from storage.root import Root
from storage.served import Served, begin_anew, drop_stray_tags, is_anew, mend_tags, read_served
from storage.state import documents_table, parsed_table, refined_table
from storage.vectors import FOLDER as VECTORS
from storage.vectors import STATES
from tasks.models.protocols import IndexEncoder
from tasks.retrieve.index.rows import (
    desired_rows,
    model_identity,
    node_rows,
    nodes_identity,
    skill_rows,
    skill_texts,
)

if TYPE_CHECKING:  # its import takes longer than a query
    import lancedb

# The columns with an index. Words are found by the routing index.
INDEXED = {SKILLS: ["doc_id", "doc_key"], NODES: ["doc_id", "node_id"], INDUCED: ["row_id"]}
# Few documents per write make many small files; many of them must fit in memory with the vectors of their
# nodes. Skills have one each, and the encoder is a sixth faster with thousands of texts to make batches of.
_DOCUMENTS_PER_WRITE = 500
_SKILLS_PER_WRITE = 2500
_DOCUMENTS_PER_BATCH = 1000  # of a task that encodes


@dataclass(frozen=True, slots=True)
class Built:
    """What a build wrote: the versions of the tables, their rows, and the number of vectors computed.

    `nodes` is None if that table was left for a later build. `nodes_base` is the version of `nodes` that the
    rows of skills refer to, None if they refer to none. `anew` tells whether every row was written. `induced`
    is None where nothing was learned.
    """

    skills: int
    nodes: int | None
    skills_rows: int
    nodes_rows: int
    vectors_new: int
    changed: bool
    nodes_base: int | None = None
    anew: bool = False
    induced: int | None = None

    def tables(self) -> dict[str, int | None]:
        """Return the version of each table, by its name."""
        return {SKILLS: self.skills, NODES: self.nodes, INDUCED: self.induced}


def build(
    root: Root, *, encoder: IndexEncoder, with_nodes: bool, anew: bool = False, corpus: Root | None = None
) -> Built:
    """Write to both tables what changed since the served version, which stays as it is.

    Args:
        root: The root of the tables; the caller holds its writer lock.
        encoder: Encodes name and description of skills, and nodes that parse stored without vectors.
        with_nodes: Whether `nodes` is updated too.
        anew: Write every row into new files beside those of the served version. Every later build does the
            same until a version made this way is served.
        corpus: The root of the documents, if it is not `root`.
    """
    model, db, source = model_identity(encoder.card), connect(root), corpus or root
    mend_tags(root)
    drop_stray_tags(root)
    if anew:
        begin_anew(root)
    anew = is_anew(root)
    last = read_served(root)
    served = None if anew else last
    skills = TableWriter(db, SKILLS, schema_of(SKILLS, model), served.skills if served else None)
    present = _present(skills)
    state = desired_rows(source, model).join(present, on="doc_id", how="full", coalesce=True)
    nodes: TableWriter | None = None
    made, base = 0, nodes_base(db, served)
    if with_nodes:
        nodes = TableWriter(db, NODES, schema_of(NODES, nodes_identity(encoder.card)), base)
        state, made = _load_nodes(source, nodes, state, encoder)
    made += _load_skills(source, skills, set(present["doc_id"]), state, encoder)
    version, written = _finish(skills, SKILLS), _finish(nodes, NODES) if nodes else None
    return Built(
        skills=version,
        nodes=written,
        skills_rows=skills.table.count_rows(),
        nodes_rows=nodes.table.count_rows() if nodes else 0,
        vectors_new=made,
        changed=_changed(served, skills, nodes),
        nodes_base=written if nodes else None if skills.rebuilt else base,
        anew=anew,
        induced=last.induced if last else None,  # it is learned from other things, by `induce`
    )


def _changed(served: Served | None, skills: TableWriter, nodes: TableWriter | None) -> bool:
    if served is None or skills.written:
        return True
    return nodes is not None and (nodes.written or not served.nodes)


def nodes_base(db: lancedb.DBConnection, served: Served | None) -> int | None:
    """Return the version of `nodes` that the next build continues from, None if it starts with no rows.

    It is the version that the served skills refer to, because their rows tell which nodes are up to date.
    """
    if served is None:
        return None
    # A version of `nodes` that is not served may be missing without any query having failed.
    return served.nodes or (served.nodes_base if served.nodes_base in versions_of(db, NODES) else None)


def _finish(writer: TableWriter, name: str) -> int:
    return writer.finish(INDEXED[name]) if writer.written else int(writer.table.version)


def _present(skills: TableWriter) -> pl.DataFrame:
    return pl.DataFrame(skills.table.search().select(["doc_id", "digest", "nodes_digest"]).to_arrow())


def _load_nodes(
    root: Root, nodes: TableWriter, state: pl.DataFrame, encoder: IndexEncoder
) -> tuple[pl.DataFrame, int]:
    """Update the table of nodes; return the state with the new digests, and the number of vectors computed.

    The row of a skill whose nodes changed is written again too, because it says which nodes belong to it.
    """
    if nodes.rebuilt:
        state = state.with_columns(nodes_digest=pl.lit(None, pl.String))
    held = set(nodes.table.search().select(["doc_id"]).to_arrow().column("doc_id").to_pylist())
    wanted = state.filter(pl.col("wanted").is_not_null())
    todo = set(wanted.filter(pl.col("wanted_nodes").ne_missing(pl.col("nodes_digest")))["doc_id"])
    nodes.delete((held - set(wanted["doc_id"])) | (todo & held))
    made = 0
    for partitions, ids in _batches(todo, _DOCUMENTS_PER_WRITE):
        rows, new = node_rows(root, partitions, ids, encoder=encoder, schema=nodes.schema)
        nodes.add(rows)
        made += new
    is_new = pl.col("doc_id").is_in(list(todo))
    return state.with_columns(
        digest=pl.when(is_new).then(None).otherwise("digest"),
        nodes_digest=pl.when(is_new).then("wanted_nodes").otherwise("nodes_digest"),
    ), made


def _load_skills(
    root: Root, skills: TableWriter, held: set[str], state: pl.DataFrame, encoder: IndexEncoder
) -> int:
    gone = set(state.filter(pl.col("wanted").is_null())["doc_id"])
    wanted = state.filter(pl.col("wanted").is_not_null(), pl.col("wanted").ne_missing(pl.col("digest")))
    todo = set(wanted["doc_id"])
    skills.delete(held & (gone | todo))
    columns = wanted.select("doc_id", "stale", "nodes_digest", digest="wanted")
    for partitions, ids in _batches(todo, _SKILLS_PER_WRITE):
        documents = documents_table(root).read(partitions).filter(pl.col("doc_id").is_in(list(ids)))
        skills.add(skill_rows(documents, columns, encoder=encoder, tokenizer=encoder, schema=skills.schema))
    return len(todo)


def _batches(doc_ids: Iterable[str], size: int) -> Iterator[tuple[list[int], set[str]]]:
    """Group documents by partition into batches of at least `size` documents; the last may have fewer."""
    by_partition: defaultdict[int, set[str]] = defaultdict(set)
    for doc_id in doc_ids:
        by_partition[partition_of(doc_id)].add(doc_id)
    partitions: list[int] = []
    ids: set[str] = set()
    for partition, group in sorted(by_partition.items()):
        partitions, ids = [*partitions, partition], ids | group
        if len(ids) >= size:
            yield partitions, ids
            partitions, ids = [], set()
    if ids:
        yield partitions, ids


def plan_embedding(root: Root, *, encoder: IndexEncoder) -> list[list[int]]:
    """Return batches of the partitions that hold skills without a served row by this encoder."""
    wanted = desired_rows(root, model_identity(encoder.card))
    served = read_served(root)
    if served is not None:
        rows = open_at(connect(root), SKILLS, served.skills).search().select(["digest"]).to_arrow()
        wanted = wanted.filter(~pl.col("wanted").is_in(rows.column("digest").to_pylist()))
    return [partitions for partitions, _ in _batches(wanted["doc_id"], _DOCUMENTS_PER_BATCH)]


def embed_partitions(root: Root, partitions: list[int], *, encoder: IndexEncoder) -> int:
    """Encode name and description of every skill in these partitions; return how many there are.

    The encoder keeps what it encodes, and encodes no text twice.
    """
    texts = skill_texts(documents_table(root).read(partitions, ["name", "description"]))
    encoder.encode(texts)
    return len(texts)


_CACHES = ("state/signatures", "state/near", "state/vectors")
_LOST = "lost:"  # begins the digest of a document whose copy in another source is kept instead


def redo_all(root: Root, *, keep_vectors: bool) -> int:
    """Mark everything as neither refined nor parsed; return how many documents will be refined again.

    The next build writes every row too; if that run is killed, another one does. The corpus and the served
    version stay until the stages have written the new rows. Answers of an LLM, which cost money, stay too,
    and so do cached vectors and token embeddings with `keep_vectors`. The caller holds the writer lock.
    """
    begin_anew(root)
    refined = refined_table(root).read()
    again = ~pl.col("digest").fill_null("").str.starts_with(_LOST)
    # The rows stay with their outcomes: a document that no source has any more must still be known.
    blank = pl.when(again).then(pl.lit("")).otherwise("digest")
    refined_table(root).replace(refined["doc_id"].unique().to_list(), refined.with_columns(digest=blank))
    parsed = parsed_table(root).read()
    parsed_table(root).replace(parsed["doc_id"].to_list(), parsed.with_columns(digest=pl.lit("")))
    for folder in (*_CACHES, *(() if keep_vectors else (VECTORS, STATES))):
        root.delete(folder)
    return refined.filter(again).height
