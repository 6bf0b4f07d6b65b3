"""Skills built from segmentation to the index, by the flows' own tasks, beside encoding the same texts alone.

Run by hand: `python tests/benchmarks/build_nodes.py PARQUET [--skills 395] [--seed 0]`;
PARQUET has columns `id` and `content`. SkillPager, section 5.1: 395 skills took 9.83 hours with four workers.
A second corpus, below a root of its own, holds half of the first one's skills and has its vectors.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")

from flows.settings import load_settings
from storage.root import Root
from storage.state import documents_table, nodes_table
from storage.vectors import FOLDER as VECTORS
from storage.vectors import STATES, VectorStore, text_hash, vector_stores
from tasks.models.encoder import OnnxEncoder
from tasks.parse.shells import parse_batch, plan_parsing, prepare_encoder
from tasks.refine.workers import batch_processes
from tasks.retrieve.index.build import skill_texts
from tasks.retrieve.shells import build_tables, check_tables, class_licences, publish_tables
from tests.benchmarks.refining import crawl, refine

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# Refining drops some, so that more are read than are built.
_READ_PER_SKILL = 2


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall and processor seconds."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:6.1f} s wall, {self.processor:6.1f} s of processor"


def timed(work: Callable[[], object]) -> Spent:
    """Return what a piece of work took, all its threads and processes together."""
    wall, processor = time.perf_counter(), _processor()
    work()
    return Spent(time.perf_counter() - wall, _processor() - processor)


def _processor() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def corpus(folder: Path, rows: pl.DataFrame, skills: int) -> Root:
    """Return a root whose refined corpus is as many of these rows as asked for."""
    root = Root(folder)
    folder.mkdir()
    rows.write_parquet(folder / "rows.parquet")
    crawl(folder, folder / "rows.parquet")
    refine(folder)
    table = documents_table(root)
    ids = table.read(columns=["doc_id"])["doc_id"].sort()
    wanted = set(ids.sample(skills, seed=0)) if len(ids) > skills else set(ids)
    table.replace(set(ids) - wanted, pl.DataFrame(schema=table.schema))
    return root


def build(root: Root, encoder: str) -> None:
    """Do what the flows parse and index do."""
    batches = plan_parsing.fn(root.uri, encoder, with_vectors=True)["batches"]
    with ThreadPoolExecutor() as waiting, batch_processes(len(batches), None, least=2) as executor:
        given = {"encoder": encoder, "with_vectors": True, "executor": executor}
        list(waiting.map(lambda partitions: parse_batch.fn(root.uri, partitions, **given), batches))
    built = build_tables.fn(root.uri, encoder, with_nodes=True)
    class_licences.fn(root.uri, built, {})
    checks = check_tables.fn(root.uri, built, encoder, load_settings().gate())
    publish_tables.fn(root.uri, built, checks, encoder, run_id="bench", now=datetime.now(UTC))


def texts_of(root: Root) -> list[str]:
    """Return every text that was encoded, as often as it occurs."""
    heads = skill_texts(documents_table(root).read(columns=["name", "description"]))
    return [*nodes_table(root).read(columns=["text"])["text"], *heads]


def known_tokens(root: Root, store: VectorStore, encoder: OnnxEncoder) -> float:
    """Return the share of the tokens of distinct texts whose vectors were kept before."""
    texts = sorted(set(texts_of(root)))
    tokens = encoder.count(texts)
    known = store.find([text_hash(text) for text in texts])[0]
    return sum(n for n, k in zip(tokens, known, strict=True) if k) / sum(tokens)


def main() -> None:
    """Print what the first corpus took, what its encoding alone takes, and what the second corpus took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--skills", type=int, default=395)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = pl.read_parquet(options.parquet).unique("content", maintain_order=True)
    rows = rows.sample(3 * _READ_PER_SKILL * options.skills, seed=options.seed, shuffle=True)
    with tempfile.TemporaryDirectory() as scratch:
        measure(Path(scratch), rows, options)


def measure(scratch: Path, rows: pl.DataFrame, options: argparse.Namespace) -> None:
    """Build both corpora below `scratch` and print."""
    n = options.skills
    first = corpus(scratch / "first", rows[: _READ_PER_SKILL * n], n)
    folder = prepare_encoder.fn(first.uri, MINILM)
    encoder = OnnxEncoder(Path(folder))
    encoder.encode(["warm"])
    whole = timed(lambda: build(first, folder))
    texts = texts_of(first)
    distinct = sorted(set(texts))
    pure = timed(lambda: encoder.encode(distinct))
    tokens = sum(encoder.count(distinct))
    print(f"{n} skills, {len(texts)} texts, {len(distinct)} distinct, {tokens} tokens")
    print(f"segmentation to index: {whole}")
    print(f"encoding alone:        {pure}, {tokens / pure.wall:.0f} tokens/s")
    ratios = whole.wall / pure.wall, whole.processor / pure.processor
    print("ratio:                 {:6.2f} of wall, {:.2f} of processor".format(*ratios))

    ids = documents_table(first).read(columns=["doc_id"])["doc_id"].sort().sample(n // 2, seed=1)
    known = rows.filter(pl.col("id").is_in(ids.implode()))
    second = corpus(scratch / "second", pl.concat([known, rows[_READ_PER_SKILL * n :]]), 10**9)
    halve(second, set(ids), n)
    shutil.copytree(first.folder / "models", second.folder / "models")
    for kept in (VECTORS, STATES):
        shutil.copytree(first.folder / kept, second.folder / kept)
    second_folder = prepare_encoder.fn(second.uri, MINILM)
    again = timed(lambda: build(second, second_folder))
    share = known_tokens(second, vector_stores(first)[0], encoder)
    print(
        f"second corpus, {share:.0%} of its tokens known: {again}, {again.wall / whole.wall:.2f} of the first"
    )


def halve(root: Root, known: set[str], skills: int) -> None:
    """Leave in the corpus those that are known, and as many others as make up the number."""
    table = documents_table(root)
    ids = set(table.read(columns=["doc_id"])["doc_id"])
    others = sorted(ids - known)[: skills - len(ids & known)]
    table.replace(ids - known - set(others), pl.DataFrame(schema=table.schema))


if __name__ == "__main__":  # worker processes load this file again
    main()
