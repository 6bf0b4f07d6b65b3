"""Builds the next version of the tables `skills` and `nodes` out of the corpus: only what changed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.lance.served import Served, begin_anew, is_anew, mend_tags, read_served
from storage.lance.tables import INDUCED, NODES, SKILLS, TableAt, TableWriter, schema_of
from storage.lance.versions import versions_of
from storage.partitions import partition_of
from storage.root import Root
from storage.state import documents_table, nodes_table, parsed_table, refined_table, seen_table
from storage.vectors import FOLDER as VECTORS
from storage.vectors import STATES
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.protocols import Encoder, IndexEncoder, Tokenizer, Vectors
from tasks.models.token_states import encoded, packing
from tasks.retrieve.routing.skill import TEMPLATE
from tasks.retrieve.routing.store import holds_expansions

INDEX_VERSION = 1  # raised only when the rows made here change
_COPIED = (
    "doc_id", "kind", "name", "description", "source", "repo", "ref", "commit", "path", "url", "author",
    "stars", "category", "language", "licence", "risks", "content_hash", "body_hash",
)  # fmt: skip


def model_identity(card: dict[str, Any]) -> dict[str, Any]:
    """Return what the table `skills` records of its encoder: name, revision, dimension, text template."""
    return {**{k: card[k] for k in ("name", "revision", "dimension")}, "template": TEMPLATE}


def nodes_identity(card: dict[str, Any]) -> dict[str, Any]:
    """Return what the table `nodes` records of its encoder: the same, and how token embeddings are packed."""
    return {**model_identity(card), "states": packing()}


def desired_rows(root: Root, model: dict[str, Any]) -> pl.DataFrame:
    """Return `doc_id`, `stale` and the digests that each document's row (`wanted`) and nodes should have."""
    seen = seen_table(root).read(columns=["doc_id", "source", "stale_since"])
    stale = seen.select("doc_id", "source", stale=pl.col("stale_since").is_not_null())
    documents = documents_table(root).read(columns=_COPIED).join(stale, on=["doc_id", "source"], how="left")
    documents = documents.with_columns(pl.col("stale").fill_null(value=False))
    basis = repr((INDEX_VERSION, sorted(model.items())))
    digests = [hashlib.sha256((basis + repr(r)).encode()).hexdigest()[:24] for r in documents.iter_rows()]
    parsed = parsed_table(root).read(columns=["doc_id", "digest"]).rename({"digest": "wanted_nodes"})
    light = documents.select("doc_id", "stale", wanted=pl.Series(digests, dtype=pl.String))
    return light.join(parsed, on="doc_id", how="left")


def skill_texts(documents: pl.DataFrame) -> list[str]:
    """Return the text of each document that its vector is made of, by TEMPLATE."""
    return [TEMPLATE.format(**row) for row in documents.select("name", "description").to_dicts()]


def skill_rows(
    documents: pl.DataFrame, state: pl.DataFrame, *, encoder: Encoder, tokenizer: Tokenizer, schema: pa.Schema
) -> pa.Table:
    """Return the `skills` rows of documents; `state` has their `stale`, `digest` and `nodes_digest`."""
    head = documents["name"] + "\n" + documents["description"] + "\n"
    rows = documents.select(*_COPIED, "body").with_columns(
        doc_key=pl.Series([d.casefold() for d in documents["doc_id"]], dtype=pl.String),
        text=head + documents["body"],
        body_start=head.str.len_chars().cast(pl.Int64),
        n_tokens=pl.Series(tokenizer.count(documents["body"].to_list()), dtype=pl.Int64),
        # A rule may have hit both the text and the files beside it.
        risks=pl.col("risks").list.eval(pl.element().struct.field("code")).list.unique(maintain_order=True),
    )
    joined = rows.join(state, on="doc_id", how="left", maintain_order="left")
    return _arrow(joined, encoder.encode(skill_texts(documents)), schema)


def node_rows(
    root: Root, partitions: list[int], doc_ids: set[str], *, encoder: Encoder, schema: pa.Schema
) -> pa.Table:
    """Return the `nodes` rows of these documents in these partitions.

    The encoder keeps the vectors and token embeddings that parse made by their texts.
    """
    nodes = nodes_table(root).read(partitions).filter(pl.col("doc_id").is_in(list(doc_ids)))
    vectors, states = encoded(encoder, nodes["text"].to_list())
    return _arrow(nodes.with_columns(states=pl.Series(states, dtype=pl.Binary)), vectors, schema)


def _arrow(rows: pl.DataFrame, vectors: Vectors, schema: pa.Schema) -> pa.Table:
    plain = rows.select([n for n in schema.names if n != "vector"]).to_arrow()
    dimension = schema.field("vector").type.list_size
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    column = pa.FixedSizeListArray.from_arrays(flat, dimension)
    return plain.append_column("vector", column).select(schema.names).cast(schema)


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

    def tables_at(self, root: Root) -> dict[str, TableAt]:
        """Return the tables as they were built, by name; each is opened once, when it is first read."""
        found = self.tables().items()
        return {name: TableAt(root, name, version) for name, version in found if version is not None}


def update_table(
    writer: TableWriter, held: Collection[str], have: Mapping[str, str | None],
    want: Mapping[str, str | None], rows: Callable[[set[str]], Iterable[pa.Table]],
) -> set[str]:  # fmt: skip
    """Bring a table up to date by digests: what changed is written, what is gone is removed.

    `have` holds the digest that these rows were made by, of each id; a missing one is None. `want` holds the
    digest of each id that the table is to have. `rows` yields the rows of ids that changed, a write each.

    Returns:
        The ids whose digest was another one.
    """
    changed = {key for key, digest in want.items() if have.get(key) != digest}
    writer.delete({key for key in held if key in changed or key not in want})
    for some in rows(changed):
        writer.add(some)
    return changed


def build(
    root: Root, *, encoder: IndexEncoder, with_nodes: bool, anew: bool = False, corpus: Root | None = None
) -> Built:
    """Write to both tables what changed since the served version, which stays as it is.

    `root` is the root of the tables; the caller holds its writer lock. `encoder` encodes name and description
    of skills, and nodes that parse made no vectors of. `with_nodes` says whether `nodes` is updated too. With
    `anew` every row is written into new files beside those of the served version. Every later build does the
    same until a version made this way is served. `corpus` is the root of the documents, if it is not `root`.
    """
    model, source = model_identity(encoder.card), corpus or root
    mend_tags(root)
    if anew:
        begin_anew(root)
    anew = is_anew(root)
    last = read_served(root)
    served = None if anew else last
    skills = TableWriter(root, SKILLS, schema_of(SKILLS, model), served.skills if served else None)
    wanted, had = desired_rows(source, model), skills.frame(["doc_id", "digest", "nodes_digest"])
    have = dict(had.select("doc_id", "digest").iter_rows())
    nodes_have = dict(had.select("doc_id", "nodes_digest").iter_rows())
    nodes: TableWriter | None = None
    made, base = _made(encoder), nodes_base(root, served)
    if with_nodes:
        nodes = TableWriter(root, NODES, schema_of(NODES, nodes_identity(encoder.card)), base)
        nodes_want = dict(wanted.select("doc_id", "wanted_nodes").iter_rows())
        nodes_have = {} if nodes.rebuilt else nodes_have
        changed = _update_nodes(source, nodes, nodes_have, nodes_want, encoder)
        nodes_have |= {doc_id: nodes_want[doc_id] for doc_id in changed}
        # The row of a skill whose nodes changed is written again too: it says which nodes belong to it.
        have |= dict.fromkeys(changed)
    _update_skills(source, skills, set(had["doc_id"]), have, wanted, nodes_have, encoder)
    version, written = skills.finish(), nodes.finish() if nodes else None
    return Built(
        skills=version,
        nodes=written,
        skills_rows=skills.count(),
        nodes_rows=nodes.count() if nodes else 0,
        vectors_new=_made(encoder) - made,
        changed=_changed(served, skills, nodes) or not (served and holds_expansions(root, served)),
        nodes_base=written if nodes else None if skills.rebuilt else base,
        anew=anew,
        induced=last.induced if last else None,  # it is learned from other things, by `induce`
    )


def _changed(served: Served | None, skills: TableWriter, nodes: TableWriter | None) -> bool:
    if served is None or skills.written:
        return True
    return nodes is not None and (nodes.written or not served.nodes)


def _made(encoder: IndexEncoder) -> int:
    return encoder.made if isinstance(encoder, KeptEncoder) else 0


def nodes_base(root: Root, served: Served | None) -> int | None:
    """Return the version of `nodes` that the next build continues from, None if it starts with no rows.

    It is the version that the served skills refer to, because their rows tell which nodes are up to date.
    """
    if served is None:
        return None
    # A version of `nodes` that is not served may be missing without any query having failed.
    return served.nodes or (served.nodes_base if served.nodes_base in versions_of(root, NODES) else None)


def _update_nodes(
    root: Root, nodes: TableWriter, have: Mapping[str, str | None], want: Mapping[str, str | None],
    encoder: IndexEncoder,
) -> set[str]:  # fmt: skip
    """Bring the table of nodes up to date; return the documents whose rows changed."""

    def rows(doc_ids: set[str]) -> Iterator[pa.Table]:
        for partitions, ids in _batches(doc_ids, _DOCUMENTS_PER_WRITE):
            yield node_rows(root, partitions, ids, encoder=encoder, schema=nodes.schema)

    return update_table(nodes, set(nodes.frame(["doc_id"])["doc_id"].unique()), have, want, rows)


def _update_skills(
    root: Root, skills: TableWriter, held: set[str], have: Mapping[str, str | None], wanted: pl.DataFrame,
    nodes_digests: Mapping[str, str | None], encoder: IndexEncoder,
) -> None:  # fmt: skip
    digests = pl.Series([nodes_digests.get(d) for d in wanted["doc_id"]], dtype=pl.String)
    columns = wanted.select("doc_id", "stale", nodes_digest=digests, digest="wanted")

    def rows(doc_ids: set[str]) -> Iterator[pa.Table]:
        for partitions, ids in _batches(doc_ids, _SKILLS_PER_WRITE):
            some = documents_table(root).read(partitions).filter(pl.col("doc_id").is_in(list(ids)))
            yield skill_rows(some, columns, encoder=encoder, tokenizer=encoder, schema=skills.schema)

    want = dict(wanted.select("doc_id", "wanted").iter_rows())
    update_table(skills, held, have, want, rows)


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
    wanted, served = desired_rows(root, model_identity(encoder.card)), read_served(root)
    if served is not None:
        held = served.skills_table(root).frame(["digest"])["digest"]
        wanted = wanted.filter(~pl.col("wanted").is_in(held.implode()))
    return [partitions for partitions, _ in _batches(wanted["doc_id"], _DOCUMENTS_PER_BATCH)]


def embed_partitions(root: Root, partitions: list[int], *, encoder: IndexEncoder) -> int:
    """Encode name and description of every skill in these partitions; return how many there are.

    The encoder keeps what it encodes, and encodes no text twice.
    """
    texts = skill_texts(documents_table(root).read(partitions, ["name", "description"]))
    encoder.encode(texts)
    return len(texts)


_CACHES = ("state/signatures", "state/near")
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
