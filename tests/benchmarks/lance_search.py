"""LanceDB's full text, hybrid search and indexes of columns beside ours: quality, milliseconds, size, build.

Run by hand: `python -m tests.benchmarks.lance_search CORPUS... --queries Q --qrels R --folder F`, where files
are as for `evaluate routing`; the folder keeps the encoder's export and the vectors. Full text has an index a
field, with stems and the boosts of BM25F's fields; `hybrid` is its sum of ranks (RRF) with an IVF index of
vectors. `--repeat N` copies each row. Ours are BM25F, and the router's legs without the learned one.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import polars as pl
import pyarrow as pa
from lancedb.index import FTS, Bitmap, BTree, IvfFlat
from lancedb.query import MultiMatchQuery

from tasks.evaluate.routing.data import read_qrels, read_skills, read_tasks
from tasks.models.encoder import OnnxEncoder
from tasks.models.onnx_export import exported_encoder
from tasks.retrieve.routing.coarse import best_rows
from tasks.retrieve.routing.router import Router
from tasks.retrieve.routing.skill import Skill

_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_FIELDS = {"name": 3.0, "description": 2.0, "body": 1.0}
_K, _QUERIES, _READ = 10, 300, 600  # _READ: characters of a query that full text is asked with

Ask = Callable[[str], list[str]]


def _table(folder: Path, skills: pl.DataFrame, vectors: Any) -> Any:  # noqa: ANN401
    shutil.rmtree(folder, ignore_errors=True)
    rows = skills.with_columns(
        pl.Series("vector", vectors, dtype=pl.Array(pl.Float32, vectors.shape[1])),
        kind=pl.Series(np.arange(len(skills)) % 3),
    )
    held = rows.to_arrow()  # whose large texts a BTree does not take
    ids = held["doc_id"].cast(pa.string())
    held = held.set_column(held.schema.get_field_index("doc_id"), "doc_id", ids)
    table = lancedb.connect(folder).create_table("skills", held)
    for name, make in {
        **{
            field: lambda f: table.create_index(f, config=FTS(stem=True, remove_stop_words=True))
            for field in _FIELDS
        },
        "vector": lambda f: table.create_index(f, config=IvfFlat(distance_type="cosine")),
        "doc_id": lambda f: table.create_index(f, config=BTree()),
        "kind": lambda f: table.create_index(f, config=Bitmap()),
    }.items():
        began = time.perf_counter()
        make(name)
        print(f"  index of {name}: {time.perf_counter() - began:.1f} s", flush=True)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"  {len(rows):,} rows, {size / 1e6:,.0f} MB", flush=True)
    return table


def _measured(name: str, ask: Ask, texts: dict[str, str], wanted: dict[str, set[str]]) -> None:
    ask(next(iter(texts.values())))
    hit, rank, recall, times = [], [], [], []
    for query_id, text in texts.items():
        began = time.perf_counter()
        found = list(dict.fromkeys(doc_id.partition("#")[0] for doc_id in ask(text)))[:_K]
        times.append(1000 * (time.perf_counter() - began))
        right = [doc_id in wanted[query_id] for doc_id in found]
        hit.append(any(right[:1]))
        rank.append(1 / (right.index(True) + 1) if any(right) else 0.0)
        recall.append(sum(right) / min(_K, len(wanted[query_id])))
    print(
        f"  {name:14} hit@1 {np.mean(hit):.3f}  MRR@10 {np.mean(rank):.3f}  R@10 {np.mean(recall):.3f}"
        f"  median {np.median(times):6.1f} ms  p95 {np.percentile(times, 95):6.1f} ms",
        flush=True,
    )


def main() -> None:
    """Print what the indexes take, and a line for each way to search."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--qrels", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    encoder = OnnxEncoder(exported_encoder(given.folder, _MINILM))
    held = read_skills(given.corpus).select(Skill._fields).sort("doc_id")
    skills, kept = [Skill(*row) for row in held.iter_rows()], given.folder / f"heads-{len(held)}.npy"
    if not kept.exists():
        np.save(kept, encoder.encode([skill.head for skill in skills]))
    copies = [held.with_columns(pl.col("doc_id") + f"#{n}") for n in range(given.repeat)]
    vectors = np.load(kept)
    wanted: dict[str, set[str]] = {}
    for query_id, doc_id, relevance in read_qrels(given.qrels):
        if relevance > 0:
            wanted.setdefault(query_id, set()).add(doc_id)
    tasks = [task for task in read_tasks(given.queries) if task.query_id in wanted]
    chosen = np.random.default_rng(0).permutation(len(tasks))[:_QUERIES]
    texts = {tasks[i].query_id: tasks[i].text for i in chosen}
    table = _table(given.folder / "lance", pl.concat(copies), np.tile(vectors, (given.repeat, 1)))

    def words(text: str) -> list[str]:
        query = MultiMatchQuery(text[:_READ], list(_FIELDS), boosts=list(_FIELDS.values()))
        asked = table.search(query, query_type="fts").limit(_K * given.repeat)
        return [str(row["doc_id"]) for row in asked.select(["doc_id", "_score"]).to_list()]

    def hybrid(text: str) -> list[str]:
        query = MultiMatchQuery(text[:_READ], list(_FIELDS), boosts=list(_FIELDS.values()))
        asked = table.search(query_type="hybrid").vector(encoder.encode([text])[0]).text(query)
        return [str(row["doc_id"]) for row in asked.limit(_K * given.repeat).to_list()]

    _measured("Lance text", words, texts, wanted)
    _measured("Lance hybrid", hybrid, texts, wanted)
    if given.repeat == 1:
        router, ids = Router.from_documents(skills, encoder, vectors=vectors), [s.doc_id for s in skills]
        rows = np.arange(len(ids))
        ours = lambda text: [ids[row] for row in best_rows(rows, router.words(text), _K, ids)]  # noqa: E731
        _measured("BM25F", ours, texts, wanted)
        _measured(
            "our legs", lambda text: [f.doc_id for f in router.rank(text, _K, fold=False)], texts, wanted
        )


if __name__ == "__main__":
    main()
