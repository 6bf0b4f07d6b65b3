"""The gate's test of regression: no leg of a new version may find less than the served version's."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from threadpoolctl import threadpool_limits

from storage.folder import threads_of_process
from storage.lance.served import Served, read_served
from storage.lance.tables import NODES, TableAt
from storage.partitions import PARTITIONS
from storage.root import Root
from storage.state import nodes_table
from tasks.evaluate.health.probes import Probe, draw_probes, drawn_by, logged_probes
from tasks.evaluate.measures.statistics import paired_bootstrap
from tasks.evaluate.paging.bench import Remembering
from tasks.models.encoder import load_encoder
from tasks.models.protocols import Encoder, Vectors
from tasks.retrieve.index.gate import Check, few_changed
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.search import Searcher, rank_lexical
from tasks.retrieve.routing.store import RoutingIndex, drop_routing, is_kept, open_routing, prepare_routing

LEVEL = 0.99
_K = 10
_FEWEST = 10  # probes: of fewer, chance alone may lower every one
_SKILLS_PER_PROBE = 3  # drawn from: some skills have no sentence that fits
# Where few skills changed, the others' rows are those that are served: by vectors so many probes and skills
# stand for all.
_ASKED, _RIVALS = 40, 500
Ranks = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class _Side:
    """A version as it would be served: its tables and index, and its encoder's vectors of the probes."""

    skills: TableAt
    nodes: TableAt | None
    index: RoutingIndex
    router: Router
    vectors: Vectors


def check_regression(
    root: Root, candidate: Served, *, encoder: Encoder, count: int, max_loss: float,
    corpus: Root | None = None, workers: int | None = 1,
) -> list[Check]:  # fmt: skip
    """Ask both versions for sentences of skills that both hold, and compare leg by leg.

    Of skills that both hold as they are, where there are enough; else of all that both hold: rules that
    change every text a little would otherwise let any model pass. Where few changed since what is served, and
    its routing index has today's form, the legs by vectors of rows (`dense`, `nodes`) ask at most 40 of the
    probes among 500 skills: their rows are the same.

    A leg fails where its mean reciprocal rank at 10 falls by more than `max_loss`, 0 to 1, and the noise:
    half the 99 % interval of a paired bootstrap over probes. Skills that one version alone holds take no
    rank, so that a corpus may grow. The candidate's routing index is made here, by `workers` processes (None:
    one a core), and goes if it fails. There are at most `count` probes, one a skill, out of `corpus` if
    sentences lie there.

    Returns:
        `probes.asked`, which always passes and says how many were; and a check a leg (`dense`, `lexical`,
        `fused` as `search` answers, `nodes` where both versions have them), unless fewer than ten can be
        asked. `logged` is `fused` for what people asked of late and was answered, where that is kept. None
        where nothing is served.

    Raises:
        StorageError: A version's tables or its encoder cannot be opened.
    """
    if (served := read_served(root)) is None:
        return []
    shared = _shared(root, served, candidate)
    few = is_kept(root, served) and few_changed(root, candidate.tables_at(root)) is not None
    sentences = _sentences(corpus or root, shared["doc_id"], _SKILLS_PER_PROBE * count)
    probes = draw_probes(sentences, shared, count=count)
    # Said also where it is nothing: a gate that compared nothing must not look like one that was passed.
    asked = Check("probes.asked", passed=True, value=len(probes), limit=count, bound="may be at most")
    if len(probes) < _FEWEST:
        return [asked]
    prepare_routing(root, candidate, workers)
    asking = Remembering(encoder)  # both versions are asked the same
    ids, before = set(shared["doc_id"]), _encoder_of(root, served, candidate, asking)
    some = {p.doc_id for p in probes[:_ASKED]} | set(heapq.nsmallest(_RIVALS, ids, key=drawn_by))
    rivals = some if few else None
    indices = [open_routing(root, version) for version in (candidate, served)]
    if any(index.learned is None for index in indices):  # the other is compared as if it had no such leg
        indices = [replace(index, learned=None) for index in indices]
    sides = ((candidate, indices[0], asking), (served, indices[1], before))
    new, old = (_ranks(_side(root, *side, probes), probes, ids, rivals) for side in sides)
    checks = [_check(leg, new[leg], old[leg], max_loss) for leg in new if leg in old]
    if len(logged := logged_probes(root, ids, count=count)) >= _FEWEST:
        now, then = (_fused(_side(root, *side, logged), logged, ids) for side in sides)
        checks.append(_check("logged", now, then, max_loss))
    if not all(check.passed for check in checks):
        drop_routing(root, candidate)
    return [asked, *checks]


def _check(leg: str, new: Sequence[float], old: Sequence[float], max_loss: float) -> Check:
    mean, _, high, _ = paired_bootstrap(new, old, level=LEVEL)
    lost, limit = max(0.0, -mean), max_loss + high - mean
    return Check(f"probes.{leg}_loss", -mean <= limit, round(lost, 4), round(limit, 4), "may be at most")


def _encoder_of(root: Root, served: Served, candidate: Served, encoder: Encoder) -> Encoder:
    return (
        encoder
        if served.model == candidate.model
        else Remembering(load_encoder(str(root.fetch(served.model["path"]))))
    )


def _shared(root: Root, served: Served, candidate: Served) -> pl.DataFrame:
    """Return doc_id, name and description of skills equal in both versions; if too few, of all in both."""
    columns = ["doc_id", "name", "description", "content_hash"]
    new, old = (version.skills_table(root).frame(columns) for version in (candidate, served))
    same = new.join(old, on=["doc_id", "content_hash"], how="semi")
    return same if same.height >= _FEWEST else new.join(old, on="doc_id", how="semi")


def _sentences(corpus: Root, doc_ids: pl.Series, enough: int) -> pl.DataFrame:
    """Return nodes of at least so many of these skills, or of all: a few partitions are a fair sample."""
    table, found, held = nodes_table(corpus), [], 0
    columns = ["node_id", "doc_id", "block", "text"]
    for partition in range(PARTITIONS):
        rows = table.read([partition], columns).filter(pl.col("doc_id").is_in(doc_ids.implode()))
        found.append(rows)
        held += rows["doc_id"].n_unique()
        if held >= enough:
            break
    return pl.concat(found)


def _side(
    root: Root, version: Served, index: RoutingIndex, encoder: Encoder, probes: Sequence[Probe]
) -> _Side:
    skills = version.skills_table(root)
    router = Searcher(skills, index, encoder).router
    return _Side(skills, version.table(root, NODES), index, router, encoder.encode([p.text for p in probes]))


def _ranks(side: _Side, probes: Sequence[Probe], shared: set[str], rivals: set[str] | None) -> Ranks:
    """Return each probe's reciprocal rank at 10 by leg, among the skills shared.

    By vectors of rows it is that of a few probes among `rivals`, some of the skills, if these are given.
    """
    allowed = _allowed(side, shared)
    found: Ranks = {"dense": _vector_ranks(side.skills, side, probes, shared, rivals)}

    def lexical(probe: Probe) -> float:
        return _reciprocal([d == probe.doc_id for d in rank_lexical(side.index, probe.text, _K, allowed)])

    found["fused"], found["lexical"] = _fused(side, probes, shared), _side_by_side(lexical, probes)
    return (
        found
        if side.nodes is None
        else found | {"nodes": _vector_ranks(side.nodes, side, probes, shared, rivals)}
    )


def _fused(side: _Side, probes: Sequence[Probe], shared: set[str]) -> list[float]:
    """Return each probe's reciprocal rank at 10 as `search` answers, among the skills shared."""
    allowed = _allowed(side, shared)

    def rank(probe: Probe) -> float:
        ranked = side.router.rank(probe.text, _K, allowed=allowed)
        return _reciprocal([probe.doc_id in (r.doc_id, *r.folded) for r in ranked])

    return _side_by_side(rank, probes)


def _allowed(side: _Side, shared: set[str]) -> npt.NDArray[np.bool_]:
    return np.array([doc_id in shared for doc_id in side.index.doc_ids], dtype=np.bool_)


def _side_by_side(leg: Callable[[Probe], float], probes: Sequence[Probe]) -> list[float]:
    # NumPy and the encoder compute outside of Python. The encoder limits the threads of linear algebra and
    # sets them back; done side by side that leaves one thread, but for the limit around it.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads_of_process()) as pool:
        return list(pool.map(leg, probes))


def _reciprocal(found: Sequence[bool]) -> float:
    return 1 / (found.index(True) + 1) if True in found[:_K] else 0.0


def _vector_ranks(
    table: TableAt, side: _Side, probes: Sequence[Probe], shared: set[str], rivals: set[str] | None
) -> list[float]:
    """Return the reciprocal rank of each probe's skill by the vectors of its row, or of its other nodes."""
    probes = probes if rivals is None else probes[:_ASKED]
    vectors = side.vectors[: len(probes)]
    own = _best_of_own(table, probes, vectors)
    nearer = np.zeros(len(probes), dtype=np.int64)
    doc_of = np.array([p.doc_id for p in probes])
    for batch in table.batches(["doc_id", "vector"], **({} if rivals is None else {"doc_id": rivals})):
        ids = np.array(batch.column("doc_id").to_pylist())
        # A look-up each: numpy would sort all that are shared for every batch.
        rows = np.array([doc_id in shared for doc_id in ids], dtype=np.bool_)
        near = _matrix(batch)[rows] @ vectors.T > own + 1e-6
        nearer += (near & (ids[rows][:, None] != doc_of)).sum(axis=0)
    return [
        1 / (n + 1) if n < _K and best > -1 else 0.0 for n, best in zip(nearer.tolist(), own, strict=True)
    ]


def _best_of_own(table: TableAt, probes: Sequence[Probe], vectors: Vectors) -> npt.NDArray[np.float32]:
    """Return the cosine of each probe to the nearest row of its skill with another text; -2 for none."""
    rows = table.rows(["doc_id", "text", "vector"], doc_id=[p.doc_id for p in probes])
    ids, texts = (np.array(rows.column(c).to_pylist(), dtype=object) for c in ("doc_id", "text"))
    cosines = _matrix(rows) @ vectors.T
    best = np.full(len(probes), -2, dtype=np.float32)
    for i, probe in enumerate(probes):
        others = cosines[(ids == probe.doc_id) & (texts != probe.text), i]
        best[i] = others.max(initial=-2)
    return best


def _matrix(rows: Any) -> Vectors:  # noqa: ANN401 (a record batch or a table, whose columns read alike)
    column = rows.column("vector")
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return np.asarray(column.flatten().to_numpy().reshape(len(rows), column.type.list_size))
