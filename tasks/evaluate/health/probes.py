"""Probes of what is served, and the history of what evaluations found: a row a probe, leg and measure."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from storage.errors import SchemaMismatch, StorageError
from storage.lance.served import Served
from storage.lance.tables import INDUCED, NODES, SKILL, TableAt
from storage.parquet import read_frame, write_frame
from storage.root import Root
from storage.state import corpus_counts, nodes_table
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


# A file an evaluation: two at once lose nothing of each other, and a damaged file takes one with it.
HISTORY = "reports/evaluations"
LATENCY = "latency"  # the probe that measures how long answers take
_AS_ONE_FILE = "reports/evaluation.parquet"  # how the history lay before
_COLUMNS: dict[str, Any] = {
    "evaluated_at": pl.Datetime("us", "UTC"), "version": pl.String, "probe": pl.String, "leg": pl.String,
    "queries": pl.Int64, "measure": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64,
}  # fmt: skip
SCHEMA = pl.Schema(_COLUMNS)
log = logging.getLogger(__name__)


def read_history(root: Root) -> pl.DataFrame:
    """Return the history, oldest evaluation first; no rows where nothing has been evaluated.

    A file that cannot be read is logged and left out: an evaluation is not to fail for an older one's file.

    Raises:
        SchemaMismatch: A newer version of Skillery wrote a file.
    """
    earlier = [_AS_ONE_FILE] if root.exists(_AS_ONE_FILE) else []
    frames = root.each(lambda file: _read(root, file), [*earlier, *root.files(HISTORY, ".parquet")])
    history = pl.concat([pl.DataFrame(schema=SCHEMA), *(f for f in frames if f is not None)])
    return history.sort("evaluated_at", maintain_order=True)


def _read(root: Root, file: str) -> pl.DataFrame | None:
    try:
        return read_frame(root, file, SCHEMA)
    except SchemaMismatch:
        raise
    except StorageError as error:
        log.warning("%s: left out of the history; `skillery doctor` sets it aside", error)
        return None


def append_history(root: Root, version: str, rows: list[dict[str, Any]], *, now: datetime) -> str:
    """Add the rows of one evaluation of a version, and return their file, relative to the root."""
    records = [{**row, "evaluated_at": now, "version": version} for row in rows]
    file = f"{HISTORY}/{now:%Y%m%dT%H%M%S%f}-{version}.parquet"
    write_frame(root, file, pl.DataFrame(records, schema=SCHEMA), SCHEMA)
    return file


def count_rows(root: Root, served: Served, dropped: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the counts of a version as rows of the history, in a stable order.

    They are `size` (rows and bytes of each table that is served, and the number of learned skills), `dropped`
    (documents a reason), `classifier mix` and `node type mix` (shares of the nodes, 0 to 1; of the corpus
    where no nodes are served).
    """
    rows: list[dict[str, Any]] = []
    nodes: pl.DataFrame | None = None
    for name, version in served.tables().items():
        table = TableAt(root, name, version)
        rows += [history_row("size", name, "rows", float(table.count()))]
        rows += [history_row("size", name, "bytes", float(table.size()[0]))]
        if name == INDUCED:
            learned = table.count(kind=[SKILL])  # it holds runs and states too
            rows += [history_row("size", "learned skills", "rows", float(learned))]
        if name == NODES:
            nodes = table.frame(["classifier", "node_type"])
    rows += [history_row("dropped", reason, "documents", float(n)) for reason, n in sorted(dropped.items())]
    columns = ["classifier", "node_type"]
    typed = nodes_table(root).read(columns=columns) if nodes is None else nodes
    return [
        *rows,
        *_shares("classifier mix", typed["classifier"]),
        *_shares("node type mix", typed["node_type"]),
    ]


def dropped_of(root: Root, served: Served) -> dict[str, int]:
    """Return how many documents are in none of a version's tables, by reason, as its run counted them.

    Compaction, forgetting and a backfill publish without a run's record: for these the root is counted now.
    """
    record = root.read_json(f"state/runs/{served.run_id}.json")
    return corpus_counts(root).dropped if record is None else dict(record.get("dropped") or {})


def _shares(mix: str, values: pl.Series) -> list[dict[str, Any]]:
    counts = values.value_counts(sort=True, name="n").sort(values.name)
    total = int(counts["n"].sum())
    return [history_row(mix, v, "share", n / total, queries=total) for v, n in counts.iter_rows()]
