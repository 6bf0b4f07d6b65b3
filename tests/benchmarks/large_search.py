"""Where the milliseconds of a warm `search` go, exactly and by the coarse scan, and what either finds.

Run by hand: `python -m tests.benchmarks.large_search ROOT FOLDER ROWS QUERIES.jsonl...`. FOLDER gets what a
search reads of ROOT with its skills repeated up to ROWS: in each repetition three tenths of the words are
others, and a vector is moved by half the difference of two others, so that the shape of the whole stays.
Queries are lines with `text`; each is asked either way, by turns. A folder with an index is taken as it is.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import polars as pl

from flows.settings import load_settings
from storage.lance.served import require_served
from storage.root import Root
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit
from tasks.retrieve.routing import bm25f, coarse, postings, router, search, store
from tasks.retrieve.routing.learned_leg import Retriever
from tasks.retrieve.routing.skill_tokens import joined_tokens
from tasks.retrieve.served_index import ServedIndex

_QUERIES, _REPLACED = 300, 0.3
_MOVED = 0.5  # of the difference of two vectors: a cosine of about .86 to the original


def _moved(vectors: Vectors, seed: int) -> Vectors:
    chance = np.random.default_rng(seed)
    some, others = (vectors[chance.integers(0, len(vectors), len(vectors))] for _ in "ab")
    return unit(vectors + np.float32(_MOVED) * (some - others))


def _reworded(held: postings.Postings, seed: int) -> postings.Postings:
    chance = np.random.default_rng(seed)
    terms = np.array(held.terms)
    new = chance.random(len(terms)) < _REPLACED
    terms[new] = chance.integers(0, 2**63, int(new.sum()), dtype=np.uint64)
    sketches = postings._sketches(terms[held.spread()], held.rows.astype(np.int64), len(held.lengths))
    return replace(held, terms=terms, sketches=sketches)


def grow(place: Path, folder: Path, rows: int) -> None:
    """Write what a search reads of a root whose skills are repeated up to so many rows."""
    for part in ("state", "models"):
        shutil.copytree(place / part, folder / part)
    source, served = Root(str(place)), require_served(Root(str(place)))
    index = store.open_routing(source, served)
    held = postings.Postings(
        **{name: store._array(source.fetch(store._folder(served)), name) for name in store._POSTINGS}
    )
    parts, tables, left = list[store._Parts](), list[pl.DataFrame](), rows
    while left > 0:
        n, seed = min(left, len(index.doc_ids)), len(parts)
        keep = np.arange(len(index.doc_ids)) < n
        words = _reworded(held, seed) if seed else held
        moved = [_moved(v, seed) if seed else v for v in (index.vectors, index.learned)]
        ids = [f"{doc_id}~{seed}" for doc_id in index.doc_ids[:n]]
        parts.append(
            store._Parts(
                ids, index.hashes[:n], postings.kept(words, keep), moved[0][:n], index.tokens, moved[1][:n]
            )
        )
        tables.append(index.rows[:n].with_columns(doc_id=pl.Series(ids)))
        left -= n
    tokens = store.kept_tokens(joined_tokens([p.tokens for p in parts]), np.arange(rows))
    whole = store._Parts(
        [d for p in parts for d in p.doc_ids],
        [h for p in parts for h in p.hashes],
        postings.joined([p.postings for p in parts]),
        np.concatenate([p.vectors for p in parts]),
        tokens,
        np.concatenate([p.learned for p in parts]),
    )
    store._write(Root(str(folder)), served, whole, bm25f.lexical_of(whole.postings), pl.concat(tables))


_STEPS: tuple[tuple[object, str], ...] = (
    (router.Router, "read"), (router.Router, "_together"), (router.Router, "_by_learned"),
    (router, "cosines"), (coarse, "cosines"), (coarse.Coarse, "standardised"),
    (OnnxEncoder, "encode"), (Retriever, "requests"),
    (bm25f.Lexical, "scores"), (router, "standardised"), (router, "leading"), (router, "best_rows"),
    (router.NearIdentical, "folded"), (search.Searcher, "allowed"), (search.Searcher, "_fetched"),
)  # fmt: skip


class Clock:
    """Wall and processor milliseconds by step."""

    def __init__(self) -> None:
        self.took: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began, used = time.perf_counter(), time.process_time()
        yield
        spent = (1000 * (time.perf_counter() - began), 1000 * (time.process_time() - used))
        self.took.setdefault(name, []).append(spent)

    def __str__(self) -> str:
        calls = max(len(self.took["search"]), 1)
        told = []
        for name, took in self.took.items():
            middle = [median(column) for column in zip(*took, strict=True)]
            whole = [sum(column) / calls for column in zip(*took, strict=True)]
            told.append("{:36} median {:7.2f} ms, cpu {:7.2f}".format(name, *middle))
            told[-1] += "; mean a search {:7.2f}, {:7.2f}".format(*whole)
        return "\n".join(told)


def timed(owner: object, name: str, clock: Callable[[], Clock]) -> None:
    """Have calls of a function of a class or module count as a step of the clock that runs."""
    inner: Callable[..., object] = getattr(owner, name)

    def outer(*args: object, **kwargs: object) -> object:
        with clock().step(
            f"  {getattr(owner, '__name__', owner)}.{name}".replace("tasks.retrieve.routing.", "")
        ):
            return inner(*args, **kwargs)

    setattr(owner, name, outer)


def texts_of(file: str) -> list[str]:
    """Return the texts of some lines of each file."""
    lines = [json.loads(line)["text"] for line in Path(file).read_text("utf-8").splitlines()]
    chosen = np.random.default_rng(0).permutation(len(lines))[:_QUERIES]
    return [lines[i] for i in chosen]


def main(place: str, folder: str, rows: str, *files: str) -> None:
    """Print the milliseconds of each step either way, and the share of the exact ten that the scan finds."""
    if not (Path(folder) / "routing").exists():
        grow(Path(place), Path(folder), int(rows))
    settings, clocks = load_settings(), [Clock(), Clock()]
    ways = [
        ServedIndex(
            Root(folder), encoder=settings.encoder,
            threads=settings.query_threads, rerank="none", exact_rows=most,
        )
        for most in (2**40, 0)
    ]  # fmt: skip
    for index in ways:
        index.search("warm up")
    now = clocks[0]
    for owner, name in _STEPS:
        timed(owner, name, lambda: now)
    for file in files:
        found, first = list[float](), list[bool]()
        for clock in clocks:
            clock.took.clear()
        for turn, text in enumerate(texts_of(file)):
            ids = list[list[str]]()
            for way in (0, 1) if turn % 2 else (1, 0):
                now = clocks[way]
                with now.step("search"):
                    answer = ways[way].search(text)
                ids.append([result["doc_id"] for result in answer["results"]])
            exact, coarse = ids if turn % 2 else ids[::-1]
            found.append(len({*exact} & {*coarse}) / max(len(exact), 1))
            first.append(exact[:1] == coarse[:1])
        shares = f"{mean(found):.4f} of the exact ten, at least {min(found)}; same first: {mean(first):.4f}"
        print(f"{file}: {shares}")
        print(f"exact\n{clocks[0]}\nscan\n{clocks[1]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
