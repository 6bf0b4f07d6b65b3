"""Rows of the tables `skills` and `nodes`, made from the corpus."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.root import Root
from storage.state import documents_table, nodes_table, parsed_table, seen_table
from tasks.models.protocols import Encoder, Tokenizer, Vectors
from tasks.models.token_states import encoded, packing
from tasks.retrieve.routing.skill import TEMPLATE

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
