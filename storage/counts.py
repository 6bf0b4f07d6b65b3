"""What a root holds, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from storage.root import Root
from storage.state import documents_table, folded_table, parsed_table, refined_table

_NOT_DROPPED = ("kept", "pending")


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """Documents, nodes and edges, and by reason how many documents crawled are in none of them."""

    documents: int
    nodes: int
    edges: int
    dropped: dict[str, int]


def corpus_counts(root: Root) -> CorpusCounts:
    """Count what the root holds now.

    Raises:
        StorageError: A file cannot be read.
    """
    parsed = parsed_table(root).read(columns=["n_nodes", "n_edges"])
    outcomes = Counter(refined_table(root).read(columns=["outcome"])["outcome"])
    documents = documents_table(root).read(columns=["doc_id", "body_hash"])
    folded = folded_table(root).read(columns=["doc_id", "body_hash"])
    near = folded.join(documents, on="body_hash", how="anti").height
    copies = {"duplicate": folded.height - near, "near_duplicate": near}
    dropped = {reason: n for reason, n in sorted(outcomes.items()) if reason not in _NOT_DROPPED}
    return CorpusCounts(
        documents=documents.height,
        nodes=int(parsed["n_nodes"].sum()),
        edges=int(parsed["n_edges"].sum()),
        dropped={**dropped, **{reason: n for reason, n in copies.items() if n}},
    )
