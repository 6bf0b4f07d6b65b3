"""Builds the next version of the tables `skills` and `nodes` out of the corpus: only what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import lancedb
import polars as pl

from storage.lance import (
    NODES,
    SKILLS,
    TableWriter,
    connect,
    nodes_schema,
    open_at,
    skills_schema,
    versions_of,
)
from storage.partitions import partition_of
from storage.root import Root
from storage.served import Served, begin_anew, drop_stray_tags, is_anew, read_served
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

# The columns with an index: scalar, full text.
INDEXED: dict[str, tuple[list[str], list[str]]] = {
    SKILLS: (["doc_id", "doc_key"], ["text"]),
    NODES: (["doc_id", "node_id"], []),
}
_DOCUMENTS_PER_WRITE = 500


@dataclass(frozen=True, slots=True)
class Built:
    """What a build left: the tables' versions (nodes None where left for later), rows, vectors made.

    `nodes_base` is the version of `nodes` that the skills' rows belong to, as they say, None where they say
    nothing; `anew` is whether every row was written.
    """

    skills: int
    nodes: int | None
    skills_rows: int
    nodes_rows: int
    vectors_new: int
    changed: bool
    nodes_base: int | None = None
    anew: bool = False


def build(
    root: Root,
    *,
    encoder: IndexEncoder,
    with_nodes: bool,
    anew: bool = False,
    corpus: Root | None = None,
) -> Built:
    """Write to both tables what changed since the served version, which stays as it is.

    Args:
        root: Where the tables lie; the caller holds its writer lock.
        encoder: Encodes name and description of skills, and nodes whose vectors parse did not leave.
        with_nodes: Whether `nodes` is brought up to date too.
        anew: Write every row into new files, beside the served version's, instead of going on from that; so
            does every build after one of these until its like is served.
        corpus: Where the documents lie that they are made of, if not in `root`.
    """
    model, db, source = model_identity(encoder.card), connect(root), corpus or root
    drop_stray_tags(root)
    if anew:
        begin_anew(root)
    anew = is_anew(root)
    served = None if anew else read_served(root)
    skills = TableWriter(db, SKILLS, skills_schema(model), served.skills if served else None)
    present = _present(skills)
    state = desired_rows(source, model).join(present, on="doc_id", how="full", coalesce=True)
    nodes: TableWriter | None = None
    made, base = 0, nodes_base(db, served)
    if with_nodes:
        nodes = TableWriter(db, NODES, nodes_schema(nodes_identity(encoder.card)), base)
        state, made = _load_nodes(source, nodes, state, encoder)
    made += _load_skills(source, skills, set(present["doc_id"]), state, encoder)
    version, written = _finish(skills, SKILLS), _finish(nodes, NODES) if nodes else None
    return Built(
        skills=version,
        nodes=written,
        skills_rows=skills.table.count_rows(),
        nodes_rows=nodes.table.count_rows() if nodes else 0,
        vectors_new=made,
        changed=served is None
        or skills.written
        or (nodes is not None and (nodes.written or not served.nodes)),
        nodes_base=written if nodes else None if skills.rebuilt else base,
        anew=anew,
    )


def nodes_base(db: lancedb.DBConnection, served: Served | None) -> int | None:
    """Return the version of `nodes` that the next build continues from; None: it starts empty.

    Only the version that the served skills refer to will do: their rows tell which nodes are up to date.
    """
    if served is None:
        return None
    # A version of `nodes` that is not served may be lost, and no query would have noticed.
    return served.nodes or (served.nodes_base if served.nodes_base in versions_of(db, NODES) else None)


def _finish(writer: TableWriter, name: str) -> int:
    return writer.finish(*INDEXED[name]) if writer.written else int(writer.table.version)


def _present(skills: TableWriter) -> pl.DataFrame:
    rows = skills.table.search().select(["doc_id", "digest", "nodes_digest"]).to_arrow()
    frame = pl.from_arrow(rows)
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def _load_nodes(
    root: Root, nodes: TableWriter, state: pl.DataFrame, encoder: IndexEncoder
) -> tuple[pl.DataFrame, int]:
    """Bring nodes up to date; return the state with the nodes' digests as they are now, and vectors made.

    A skill whose nodes changed has its row rewritten too, since the row says which nodes belong to it.
    """
    if nodes.rebuilt:
        state = state.with_columns(nodes_digest=pl.lit(None, pl.String))
    held = set(nodes.table.search().select(["doc_id"]).to_arrow().column("doc_id").to_pylist())
    wanted = state.filter(pl.col("wanted").is_not_null())
    todo = set(wanted.filter(pl.col("wanted_nodes").ne_missing(pl.col("nodes_digest")))["doc_id"])
    nodes.delete((held - set(wanted["doc_id"])) | (todo & held))
    made = 0
    for partitions, ids in _bulks(todo):
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
    for partitions, ids in _bulks(todo):
        documents = documents_table(root).read(partitions)
        documents = documents.filter(pl.col("doc_id").is_in(list(ids)))
        skills.add(skill_rows(documents, columns, encoder=encoder, tokenizer=encoder, schema=skills.schema))
    return len(todo)


def _bulks(doc_ids: set[str]) -> Iterator[tuple[set[int], set[str]]]:
    """Group documents by partition into bulk writes of about 500 documents or more."""
    by_partition: dict[int, set[str]] = {}
    for doc_id in doc_ids:
        by_partition.setdefault(partition_of(doc_id), set()).add(doc_id)
    partitions: set[int] = set()
    ids: set[str] = set()
    for partition, group in sorted(by_partition.items()):
        partitions, ids = partitions | {partition}, ids | group
        if len(ids) >= _DOCUMENTS_PER_WRITE:
            yield partitions, ids
            partitions, ids = set(), set()
    if ids:
        yield partitions, ids


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


# Folders of what is only kept so as not to be computed again.
_CACHES = ("state/signatures", "state/near", "state/vectors")
_LOST = "lost:"  # another source's copy counts: there is nothing to redo of it


def redo_all(root: Root, *, keep_vectors: bool) -> int:
    """Forget that anything has been refined and parsed; return how many documents will be refined again.

    So do the tables at the next build, whichever run comes to it: one that is killed is finished by another.
    The corpus and what is served stay until the stages have put the new rows in place. Answers of a language
    model, which were paid for, stay too.

    Args:
        root: Where they lie; the caller holds its writer lock.
        keep_vectors: Whether vectors and states kept by their text stay, so that no text is encoded twice.
    """
    begin_anew(root)
    refined = refined_table(root).read()
    again = ~pl.col("digest").fill_null("").str.starts_with(_LOST)
    # Rows stay, with what they came to: a document that no source has any more must still be known.
    blank = pl.when(again).then(pl.lit("")).otherwise("digest")
    refined_table(root).replace(refined["doc_id"].unique().to_list(), refined.with_columns(digest=blank))
    parsed = parsed_table(root).read()
    parsed_table(root).replace(parsed["doc_id"].to_list(), parsed.with_columns(digest=pl.lit("")))
    for folder in (*_CACHES, *(() if keep_vectors else (VECTORS, STATES))):
        root.delete(folder)
    return refined.filter(again).height
