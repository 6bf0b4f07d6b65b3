"""Seeded probes of what is served: does each leg of retrieval still find what is certainly there?"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lancedb
import numpy as np
import polars as pl

from storage.lance import NODES, SKILLS, connect, open_at
from storage.root import Root
from storage.schemas import Qrel
from storage.served import Served
from storage.state import nodes_table
from tasks.evaluate.measures.ranking import per_query
from tasks.evaluate.measures.statistics import bootstrap_interval
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.baselines.stages import reciprocal_rank_fusion
from tasks.retrieve.routing.search import rank_dense, rank_lexical

K = 10
_SEED = 42
_MIN_WORDS, _MAX_CHARACTERS = 6, 300
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Probe:
    """A sentence of a skill's body, and where it comes from."""

    query_id: str
    doc_id: str
    node_id: str
    text: str


def draw_probes(nodes: pl.DataFrame, skills: pl.DataFrame, *, count: int, seed: int = _SEED) -> list[Probe]:
    """Draw sentences of bodies that stand neither in their skill's name nor in its description.

    Drawn are the skills whose ids have the smallest hashes, and of each the sentence whose text has. So a
    skill that comes or goes changes its own probe, and the one that it displaces or makes room for: two
    evaluations ask the same of all that both versions hold.

    Args:
        nodes: node_id, doc_id, block and text.
        skills: doc_id, name and description.
        count: At most so many probes, at most one a skill.
        seed: Of the draw.
    """
    heads = {d: _fold(f"{n} {t}") for d, n, t in skills.select("doc_id", "name", "description").iter_rows()}
    prose = nodes.filter(
        pl.col("block").is_in(["prose", "list_item"]), pl.col("text").str.len_chars() <= _MAX_CHARACTERS
    )
    fit: dict[str, list[tuple[str, str]]] = {}
    for node_id, doc_id, text in prose.select("node_id", "doc_id", "text").iter_rows():
        folded = _fold(text)
        if folded.count(" ") + 1 >= _MIN_WORDS and folded not in heads.get(doc_id, ""):
            fit.setdefault(doc_id, []).append((node_id, text))
    chosen = sorted(fit, key=lambda doc_id: (_draw(seed, doc_id), doc_id))[:count]
    # A node's id counts the nodes before it: its text stays its own when one of them goes.
    picks = [(d, *min(fit[d], key=lambda node: (_draw(seed, node[1]), node[0]))) for d in chosen]
    return [Probe(f"probe#{i}", d, n, t) for i, (d, n, t) in enumerate(picks)]


def _draw(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _fold(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def probe_skills(
    skills: lancedb.table.Table, probes: Sequence[Probe], vectors: Vectors
) -> list[dict[str, Any]]:
    """Ask each leg for the skill of each probe: dense alone, lexical alone, fused; hit@10 and MRR@10.

    Args:
        skills: The table at the version served.
        probes: Sentences with their skill.
        vectors: The sentences' unit vectors, in the same order.
    """
    rankings: dict[str, dict[str, list[str]]] = {"dense": {}, "lexical": {}, "fused": {}}
    for probe, vector in zip(probes, vectors, strict=True):
        dense, lexical = rank_dense(skills, vector), rank_lexical(skills, probe.text)
        rankings["dense"][probe.query_id] = dense
        rankings["lexical"][probe.query_id] = lexical
        rankings["fused"][probe.query_id] = [d for d, _ in reciprocal_rank_fusion([dense, lexical])]
    qrels = [Qrel(p.query_id, p.doc_id, 1) for p in probes]
    return [
        quality_row("sentence to skill", leg, measure, list(per_query(measure, qrels, ranking).values()))
        for leg, ranking in rankings.items()
        for measure in (f"hit@{K}", f"mrr@{K}")
    ]


def probe_nodes(nodes: lancedb.table.Table, probes: Sequence[Probe], vectors: Vectors) -> dict[str, Any]:
    """Ask the nodes' vectors for each probe's skill with the probe's own node left out; hit@10.

    With its own vector in the table a sentence finds itself whatever the other vectors are worth; without,
    it has to come by its skill's other nodes.
    """
    hits = []
    for probe, vector in zip(probes, vectors, strict=True):
        query: Any = nodes.search(vector)
        found = query.distance_type("dot").limit(K + 1).select(["node_id", "doc_id", "_distance"]).to_arrow()
        others = [r["doc_id"] for r in found.to_pylist() if r["node_id"] != probe.node_id][:K]
        hits.append(float(probe.doc_id in others))
    return quality_row("sentence to its skill's other nodes", "dense", f"hit@{K}", hits)


def quality_row(probe: str, leg: str, measure: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a row of the history: the mean of a value a query, with its 95 % interval."""
    low, high = bootstrap_interval(values)
    value = float(np.mean(values))
    return {
        "probe": probe, "leg": leg, "queries": len(values), "measure": measure, "value": value,
        "low": low, "high": high,
    }  # fmt: skip


def served_probes(root: Root, served: Served, *, count: int) -> list[Probe]:
    """Draw the probes of a version; where no nodes are served, the sentences are those of the corpus.

    Args:
        root: Where the tables lie.
        served: The version to probe: the one read at the evaluation's start.
        count: At most so many probes.
    """
    skills, nodes = _open(root, served)
    columns = ["node_id", "doc_id", "block", "text"]
    sentences = nodes_table(root).read(columns=columns) if nodes is None else _frame(nodes, columns)
    heads = _frame(skills, ["doc_id", "name", "description"])
    # The corpus may have gone on since the publication.
    return draw_probes(sentences.join(heads, on="doc_id", how="semi"), heads, count=count)


def probe_index(
    root: Root, served: Served, probes: Sequence[Probe], *, encoder: Encoder
) -> list[dict[str, Any]]:
    """Probe each leg of the served tables; return a row a probe, leg and measure, none without probes.

    Where no nodes are served, only the skills' legs are probed.

    Args:
        root: Where the tables lie.
        served: The version to probe.
        probes: As `served_probes` draws them.
        encoder: The one that made the tables.
    """
    if not probes:
        return []
    skills, nodes = _open(root, served)
    vectors = encoder.encode([p.text for p in probes])
    by_nodes = [] if nodes is None else [probe_nodes(nodes, probes, vectors)]
    return [*probe_skills(skills, probes, vectors), *by_nodes]


def _open(root: Root, served: Served) -> tuple[lancedb.table.Table, lancedb.table.Table | None]:
    db = connect(root)
    nodes = None if served.nodes is None else open_at(db, NODES, served.nodes)
    return open_at(db, SKILLS, served.skills), nodes


def _frame(table: lancedb.table.Table, columns: list[str]) -> pl.DataFrame:
    rows = pl.from_arrow(table.search().select(columns).to_arrow())
    return rows if isinstance(rows, pl.DataFrame) else rows.to_frame()
