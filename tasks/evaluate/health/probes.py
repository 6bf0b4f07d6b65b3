"""Draws probes of what is served, and asks each leg of retrieval for what is certainly there."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from storage.lance.served import Served
from storage.lance.tables import NODES, TableAt
from storage.root import Root
from storage.state import nodes_table
from storage.usage import logged_searches
from tasks.evaluate.measures.statistics import bootstrap_interval
from tasks.models.protocols import Encoder, Vectors
from tasks.refine.text.words import IDENTIFIER
from tasks.retrieve.baselines.stages import reciprocal_rank_fusion
from tasks.retrieve.routing.search import rank_dense, rank_lexical
from tasks.retrieve.routing.store import RoutingIndex, open_routing

K = 10
_SEED = 42
_MIN_WORDS, _MAX_CHARACTERS = 6, 300


@dataclass(frozen=True, slots=True)
class Probe:
    """A sentence of a skill's body, and where it comes from."""

    query_id: str
    doc_id: str
    node_id: str
    text: str


def draw_probes(nodes: pl.DataFrame, skills: pl.DataFrame, *, count: int, seed: int = _SEED) -> list[Probe]:
    """Draw up to `count` sentences of bodies that stand neither in their skill's name nor in its description.

    The skills whose ids have the smallest hashes are drawn, and of each the sentence whose text has. A skill
    that comes or goes so changes its own probe, and the one that it displaces or makes room for: two
    evaluations ask the same of all that both versions hold. `nodes` has the columns node_id, doc_id, block
    and text, `skills` doc_id, name and description.
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
    chosen = sorted(fit, key=lambda doc_id: (drawn_by(doc_id, seed), doc_id))[:count]
    # A node's id counts the nodes before it: its text stays its own when one of them goes.
    picks = [(d, *min(fit[d], key=lambda node: (drawn_by(node[1], seed), node[0]))) for d in chosen]
    return [Probe(f"probe#{i}", d, n, t) for i, (d, n, t) in enumerate(picks)]


def drawn_by(text: str, seed: int = _SEED) -> bytes:
    """Return the hash by which texts and ids are drawn, the smallest first."""
    return hashlib.blake2b(f"{seed}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _fold(text: str) -> str:
    return " ".join(IDENTIFIER.findall(text.lower()))


def logged_probes(root: Root, doc_ids: Collection[str], *, count: int) -> list[Probe]:
    """Return what people asked of late, with the skill that answered, as probes; of these skills alone.

    There are none where SKILLERY_QUERY_LOG keeps no texts. The texts with the smallest hashes are taken.
    """
    asked = [(text, d) for text, d in logged_searches(root, datetime.now(UTC)) if d in doc_ids]
    chosen = sorted(asked, key=lambda one: drawn_by(one[0]))[:count]
    return [Probe(f"asked#{i}", doc_id, "", text) for i, (text, doc_id) in enumerate(chosen)]


def probe_skills(
    skills: TableAt, index: RoutingIndex, probes: Sequence[Probe], vectors: Vectors
) -> list[dict[str, Any]]:
    """Ask each leg for the skill of each probe: dense alone, lexical alone, fused; hit@10 and MRR@10.

    The table's vectors are asked, and the words of its routing index. `vectors` are the unit vectors of the
    probes' sentences, in the same order.
    """
    rankings: dict[str, list[list[str]]] = {"dense": [], "lexical": [], "fused": []}
    for probe, vector in zip(probes, vectors, strict=True):
        dense, lexical = rank_dense(skills, vector), rank_lexical(index, probe.text)
        rankings["dense"].append(dense)
        rankings["lexical"].append(lexical)
        rankings["fused"].append([d for d, _ in reciprocal_rank_fusion([dense, lexical])])
    wanted = [probe.doc_id for probe in probes]
    return [
        row
        for leg, found in rankings.items()
        for row in quality_rows("sentence to skill", leg, wanted, found)
    ]


def probe_nodes(nodes: TableAt, probes: Sequence[Probe], vectors: Vectors) -> dict[str, Any]:
    """Ask the nodes' vectors for each probe's skill with the probe's own node left out; hit@10.

    With its own vector in the table a sentence finds itself whatever the other vectors are worth; without,
    it has to come by its skill's other nodes.
    """
    hits = []
    for probe, vector in zip(probes, vectors, strict=True):
        found = nodes.nearest(vector, K + 1, ["node_id", "doc_id"])
        others = [r["doc_id"] for r in found.to_pylist() if r["node_id"] != probe.node_id][:K]
        hits.append(float(probe.doc_id in others))
    return quality_row("sentence to its skill's other nodes", "dense", f"hit@{K}", hits)


def quality_rows(
    probe: str, leg: str, wanted: Sequence[str], rankings: Sequence[Sequence[str]],
    measures: Sequence[str] = (f"hit@{K}", f"mrr@{K}"),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return a row of the history for each measure of rankings, with the 95 % interval of its mean.

    hit@k is 1 where the document wanted is among the first k, mrr@k 1 / its rank; both are 0 where it is not.
    """
    rows = []
    for measure in measures:
        name, _, k = measure.partition("@")
        ranks = [_rank(doc_id, found[: int(k)]) for doc_id, found in zip(wanted, rankings, strict=True)]
        values = [1 / rank if name == "mrr" else float(rank < math.inf) for rank in ranks]
        rows.append(quality_row(probe, leg, measure, values))
    return rows


def _rank(doc_id: str, found: Sequence[str]) -> float:
    return found.index(doc_id) + 1 if doc_id in found else math.inf


def quality_row(probe: str, leg: str, measure: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a row of the history: the mean of a value a query, with its 95 % interval."""
    value, interval = float(np.mean(values)), bootstrap_interval(values)
    return history_row(probe, leg, measure, value, queries=len(values), interval=interval)


def history_row(
    probe: str, leg: str, measure: str, value: float, *, queries: int = 0,
    interval: tuple[float | None, float | None] = (None, None),
) -> dict[str, Any]:  # fmt: skip
    """Return a row of the evaluation history; `queries` is 0 where something is counted, not asked."""
    low, high = interval
    return {
        "probe": probe, "leg": leg, "queries": queries, "measure": measure, "value": value,
        "low": low, "high": high,
    }  # fmt: skip


def served_probes(root: Root, served: Served, *, count: int) -> list[Probe]:
    """Draw up to `count` probes of a version; if no nodes are served, from the sentences of the corpus."""
    skills, nodes = served.skills_table(root), served.table(root, NODES)
    columns = ["node_id", "doc_id", "block", "text"]
    sentences = nodes_table(root).read(columns=columns) if nodes is None else nodes.frame(columns)
    heads = skills.frame(["doc_id", "name", "description"])
    # The corpus may have gone on since the publication.
    return draw_probes(sentences.join(heads, on="doc_id", how="semi"), heads, count=count)


def probe_index(
    root: Root, served: Served, probes: Sequence[Probe], *, encoder: Encoder
) -> list[dict[str, Any]]:
    """Probe each leg of the served tables; return a row for each probe, leg and measure.

    If no nodes are served, only the skills' legs are probed. `encoder` is the one that made the tables.
    """
    if not probes:
        return []
    skills, nodes = served.skills_table(root), served.table(root, NODES)
    vectors = encoder.encode([p.text for p in probes])
    by_nodes = [] if nodes is None else [probe_nodes(nodes, probes, vectors)]
    return [*probe_skills(skills, open_routing(root, served), probes, vectors), *by_nodes]
