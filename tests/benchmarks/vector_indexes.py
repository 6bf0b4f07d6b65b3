"""Which index of skills' vectors answers best: all in memory, or one of LanceDB's, at several sizes.

Run by hand: `python -m tests.benchmarks.vector_indexes CORPUS FOLDER [--sizes 20000 60000 200000]`; CORPUS is
what `evaluate routing` takes, FOLDER keeps the encoder's export and the vectors. Beyond the corpus its
vectors are repeated with noise. Queries are lines of bodies. Recall is the share of the exact best 50.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import lancedb
import numpy as np
import polars as pl
import pyarrow as pa
from lancedb.index import HnswSq, IvfFlat, IvfPq
from lancedb.query import LanceVectorQueryBuilder

from tasks.evaluate.routing.data import read_skills
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.models.protocols import Vectors
from tasks.retrieve.routing.skill import TEMPLATE

_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_K, _QUERIES = 50, 100
_NOISE = 0.02  # of each of 384 coordinates: a cosine of about 0.93 to the original
_INDEXES: Mapping[str, IvfFlat | IvfPq | HnswSq] = {
    "IVF_FLAT": IvfFlat(distance_type="cosine"),
    "IVF_PQ": IvfPq(distance_type="cosine"),
    "IVF_HNSW_SQ": HnswSq(distance_type="cosine"),
}

Search = Callable[[Vectors], list[int]]


def _unit(vectors: Vectors) -> Vectors:
    found: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return found


def _vectors(corpus: Path, folder: Path) -> tuple[Vectors, Vectors]:
    """Return the vectors of names and descriptions, and of queries; made once a folder."""
    kept = folder / "vectors.npz"
    if not kept.exists():
        skills = read_skills([corpus])
        encoder = OnnxEncoder(exported_encoder(folder, _MINILM))
        heads = [TEMPLATE.format(name=n, description=d) for _, n, d, _ in skills.iter_rows()]
        bodies = skills.filter(pl.col("body").str.len_chars() > 200)["body"].sample(_QUERIES, seed=0)
        lines = [max(body.split("\n")[:20], key=len)[:400] for body in bodies]
        np.savez(kept, skills=encoder.encode(heads), queries=encoder.encode(lines))
    with np.load(kept) as held:
        return held["skills"], held["queries"]


def _grown(vectors: Vectors, size: int) -> Vectors:
    chance = np.random.default_rng(0)
    parts = [vectors[:size]]
    while (missing := size - sum(map(len, parts))) > 0:
        some = vectors[:missing]
        parts.append(_unit(some + chance.normal(0, _NOISE, some.shape).astype(np.float32)))
    return np.concatenate(parts)


def _in_memory(vectors: Vectors) -> Search:
    def search(query: Vectors) -> list[int]:
        cosines = vectors @ query
        best = np.argpartition(-cosines, _K)[:_K]
        found: list[int] = best[np.argsort(-cosines[best])].tolist()
        return found

    return search


def _report(
    size: int, name: str, build: float, search: Search, queries: Vectors, exact: list[set[int]]
) -> None:
    search(queries[0])
    times, shares = [], []
    for query, best in zip(queries, exact, strict=True):
        began = time.perf_counter()
        found = search(query)
        times.append(1000 * (time.perf_counter() - began))
        shares.append(len(best.intersection(found)) / _K)
    print(
        f"{size:8} {name:12} build {build:7.1f} s  median {np.median(times):6.2f} ms"
        f"  p95 {np.percentile(times, 95):6.2f} ms  recall@{_K} {np.mean(shares):.3f}",
        flush=True,
    )


def _in_lancedb(folder: Path, vectors: Vectors, index: str) -> tuple[float, Search]:
    shutil.rmtree(folder, ignore_errors=True)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    rows = pa.table({"row": pa.array(np.arange(len(vectors))), "vector": column})
    table = lancedb.connect(folder).create_table("skills", rows)
    began = time.perf_counter()
    table.create_index("vector", config=_INDEXES[index])
    build = time.perf_counter() - began

    def search(query: Vectors) -> list[int]:
        by_vector = cast("LanceVectorQueryBuilder", table.search(query, query_type="vector"))
        asked = by_vector.distance_type("cosine").nprobes(20).refine_factor(4)
        found: list[int] = asked.limit(_K).select(["row", "_distance"]).to_arrow()["row"].to_pylist()
        return found

    return build, search


def main() -> None:
    """Print a line for each size and index."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 60_000, 200_000])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    skills, queries = _vectors(given.corpus, given.folder)
    for size in given.sizes:
        vectors = _grown(skills, size)
        flat = _in_memory(vectors)
        exact = [set(flat(query)) for query in queries]
        _report(size, "in memory", 0.0, flat, queries, exact)
        for index in _INDEXES:
            build, search = _in_lancedb(given.folder / "lance", vectors, index)
            _report(size, index, build, search, queries, exact)


if __name__ == "__main__":
    main()
