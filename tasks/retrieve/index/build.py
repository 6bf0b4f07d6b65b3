"""Builds the next version of the tables `skills` and `nodes` from the corpus; writes only changed rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
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

# The columns with an index of each table: scalar, full text.
INDEXED: dict[str, tuple[list[str], list[str]]] = {
    SKILLS: (["doc_id", "doc_key"], ["text"]),
    NODES: (["doc_id", "node_id"], []),
}
_DOCUMENTS_PER_WRITE = 500
_DOCUMENTS_PER_BATCH = 1000
# Folders that hold only what can be computed again.
_CACHES = ("state/signatures", "state/near", "state/vectors")
# The copy of another source was kept instead of these: refining them again gives nothing.
_LOST = "lost:"


@dataclass(frozen=True, slots=True)
class Built:
    """The tables' versions that a build left (nodes None: left for later), their rows, and vectors made.

    `nodes_base` is the version of `nodes` that the rows of `skills` refer to, None where they refer to none;
    `anew` tells whether every row was written.
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
    root: Root, *, encoder: IndexEncoder, with_nodes: bool, anew: bool = False, corpus: Root | None = None
) -> Built:
    """Write what changed since the served version to both tables; the served version stays as it is.

    Args:
        root: Where the tables lie; the caller holds its writer lock.
        encoder: Encodes name and description of skills, and nodes whose vectors parse did not leave.
        with_nodes: Whether `nodes` is updated too.
        anew: Write every row into new files; every later build does so too, until such a version is served.
        corpus: Where the documents lie, None for `root`.
    """
    model, db, source = model_identity(encoder.card), connect(root), corpus or root
    served = _continued(root, anew=anew)
    base = nodes_base(db, served)
    skills = TableWriter(db, SKILLS, skills_schema(model), served.skills if served else None)
    present = _digests(skills.table)
    state = desired_rows(source, model).join(present, on="doc_id", how="full", coalesce=True)
    nodes: TableWriter | None = None
    made = nodes_rows = 0
    if with_nodes:
        nodes = TableWriter(db, NODES, nodes_schema(nodes_identity(encoder.card)), base)
        state, made = _load_nodes(source, nodes, state, encoder)
        base, nodes_rows = _finish(nodes, NODES), nodes.table.count_rows()
    made += _load_skills(source, skills, set(present["doc_id"]), state, encoder)
    return Built(
        skills=_finish(skills, SKILLS),
        nodes=base if nodes else None,
        skills_rows=skills.table.count_rows(),
        nodes_rows=nodes_rows,
        vectors_new=made,
        changed=served is None
        or skills.written
        or (nodes is not None and (nodes.written or not served.nodes)),
        nodes_base=base if nodes or not skills.rebuilt else None,
        anew=is_anew(root),
    )


def _continued(root: Root, *, anew: bool) -> Served | None:
    """Return the version that this build continues from, None where every row is to be written."""
    drop_stray_tags(root)
    if anew:
        begin_anew(root)
    return None if is_anew(root) else read_served(root)


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


def _digests(skills: lancedb.table.Table) -> pl.DataFrame:
    return pl.DataFrame(skills.search().select(["doc_id", "digest", "nodes_digest"]).to_arrow())


def _load_nodes(
    root: Root, nodes: TableWriter, state: pl.DataFrame, encoder: IndexEncoder
) -> tuple[pl.DataFrame, int]:
    """Update `nodes`; return the state with the new digests of nodes, and the number of vectors made."""
    if nodes.rebuilt:
        state = state.with_columns(nodes_digest=pl.lit(None, pl.String))
    held = set(nodes.table.search().select(["doc_id"]).to_arrow().column("doc_id").to_pylist())
    wanted = state.filter(pl.col("wanted").is_not_null())
    todo = set(wanted.filter(pl.col("wanted_nodes").ne_missing(pl.col("nodes_digest")))["doc_id"])
    nodes.delete((held - set(wanted["doc_id"])) | (todo & held))
    made = 0
    for partitions, ids in _by_partition(todo, _DOCUMENTS_PER_WRITE):
        rows, new = node_rows(root, set(partitions), ids, encoder=encoder, schema=nodes.schema)
        nodes.add(rows)
        made += new
    is_new = pl.col("doc_id").is_in(list(todo))
    return state.with_columns(
        # A skill whose nodes changed is rewritten too: its row names the nodes that belong to it.
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
    for partitions, ids in _by_partition(todo, _DOCUMENTS_PER_WRITE):
        documents = documents_table(root).read(partitions).filter(pl.col("doc_id").is_in(list(ids)))
        skills.add(skill_rows(documents, columns, encoder=encoder, tokenizer=encoder, schema=skills.schema))
    return len(todo)


def _by_partition(doc_ids: Collection[str], least: int) -> Iterator[tuple[list[int], set[str]]]:
    """Group documents into whole partitions, in ascending order, of at least so many documents a group."""
    members: defaultdict[int, set[str]] = defaultdict(set)
    for doc_id in doc_ids:
        members[partition_of(doc_id)].add(doc_id)
    partitions: list[int] = []
    ids: set[str] = set()
    for partition, group in sorted(members.items()):
        partitions.append(partition)
        ids |= group
        if len(ids) >= least:
            yield partitions, ids
            partitions, ids = [], set()
    if ids:
        yield partitions, ids


def plan_embedding(root: Root, *, encoder: IndexEncoder) -> list[list[int]]:
    """Return batches of partitions with skills that have no row of this encoder in what is served.

    Args:
        root: Where corpus and tables lie.
        encoder: Only its card is read.
    """
    wanted = desired_rows(root, model_identity(encoder.card))
    served = read_served(root)
    if served is not None:
        rows = _digests(open_at(connect(root), SKILLS, served.skills))
        wanted = wanted.filter(~pl.col("wanted").is_in(rows["digest"].to_list()))
    return [partitions for partitions, _ in _by_partition(wanted["doc_id"], _DOCUMENTS_PER_BATCH)]


def embed_partitions(root: Root, partitions: list[int], *, encoder: IndexEncoder) -> int:
    """Encode name and description of every skill in these partitions; return how many there are.

    Args:
        root: Where the corpus lies.
        partitions: Partitions, 0 to 63.
        encoder: Keeps the vectors it makes, so that `build` encodes none of these texts again.
    """
    texts = skill_texts(documents_table(root).read(partitions, ["name", "description"]))
    encoder.encode(texts)
    return len(texts)


def rebuild_everything(root: Root, *, keep_vectors: bool) -> int:
    """Mark every document as neither refined nor parsed; return how many will be refined again.

    The next build writes every row, whichever run makes it: a run that is killed is finished by another.
    Corpus and served version stay until new rows replace them. Answers of a language model cost money: they
    stay too.

    Args:
        root: Where they lie; the caller holds its writer lock.
        keep_vectors: Whether vectors and states kept by their text stay, so that no text is encoded twice.
    """
    begin_anew(root)
    refined = refined_table(root).read()
    again = ~pl.col("digest").fill_null("").str.starts_with(_LOST)
    # Rows stay, with their outcome: a document that no source has any more must still be known.
    blank = pl.when(again).then(pl.lit("")).otherwise("digest")
    refined_table(root).replace(refined["doc_id"].unique().to_list(), refined.with_columns(digest=blank))
    parsed = parsed_table(root).read()
    parsed_table(root).replace(parsed["doc_id"].to_list(), parsed.with_columns(digest=pl.lit("")))
    for folder in (*_CACHES, *(() if keep_vectors else (VECTORS, STATES))):
        root.delete(folder)
    return refined.filter(again).height
