"""Held out: what benches hold, and no pair may: relevant skills with their copies, and requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from storage.errors import WrongInput
from storage.jsonl import read_lines
from tasks.refine.duplicates.shingles import shingle_sets
from tasks.retrieve.train.pairs.pieces import words_of

_TEXTS = ("text", "query", "paraphrase")
_FRAGMENTS = "gold.jsonl"
_JACCARD, _CONTAINED, _LEAST = 0.5, 0.8, 8  # of word 5-shingles
_GRAM = 8


@dataclass(frozen=True, slots=True)
class Bench:
    """One bench: its name, the ids of its relevant skills and of their known copies, and its requests."""

    name: str
    gold: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)


def read_benches(path: Path) -> list[Bench]:
    """Return the benches below a folder: each folder in it that holds JSON lines.

    A line with `query_id` holds a request (`text`, `query`, `paraphrase`), or names a relevant skill
    (`doc_id`, unless its `relevance` is 0 or less); one with `copy_id` names a copy; each of `gold.jsonl`
    names a skill. Other lines hold neither.

    Raises:
        WrongInput: The folder holds no JSON lines, or a file cannot be read.
    """
    files = sorted(path.rglob("*.jsonl"))
    if not files:
        msg = f"{path}: no bench, it holds no JSON lines; give a folder with queries.jsonl and qrels.jsonl"
        raise WrongInput(msg)
    benches: dict[Path, Bench] = {}
    for file in files:
        folder = file.parent.relative_to(path)
        name = folder.as_posix() if folder.parts else path.name
        bench = benches.setdefault(folder, Bench(name))
        for _, record in read_lines(file, "{query_id, text} or {query_id, doc_id}"):
            _add(bench, record, fragments=file.name == _FRAGMENTS)
    return [bench for bench in benches.values() if bench.gold or bench.requests]


def _add(bench: Bench, record: dict[str, Any], *, fragments: bool) -> None:
    if isinstance(record.get("copy_id"), str):
        bench.gold.add(record["copy_id"])
    named, relevance = "query_id" in record or fragments, record.get("relevance")
    irrelevant = isinstance(relevance, int | float) and relevance <= 0
    if named and isinstance(record.get("doc_id"), str) and not irrelevant:
        bench.gold.add(record["doc_id"])
    if "query_id" in record:
        bench.requests.extend(record[key] for key in _TEXTS if isinstance(record.get(key), str))


def near_gold(bodies: Iterable[str], gold: Sequence[str]) -> Iterator[list[int]]:
    """Yield for each body the places of the gold bodies that it is a copy or a version of.

    That is a Jaccard similarity of word 5-shingles of at least 0.5, or one text with 0.8 of the other's.
    """
    sets = list(shingle_sets(gold))
    sizes = np.array([len(found) for found in sets], np.int64)
    hashes = np.concatenate([np.zeros(0, np.uint64), *sets])
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], np.repeat(np.arange(len(sets)), sizes)[order]
    for own in shingle_sets(bodies):
        first, last = np.searchsorted(hashes, own, "left"), np.searchsorted(hashes, own, "right")
        found = [np.arange(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True) if a < b]
        shared = np.bincount(owners[np.concatenate(found)], minlength=len(sets)) if found else sizes * 0
        smaller, union = np.minimum(sizes, own.size), sizes + own.size - shared
        near = (shared >= _JACCARD * union) | (shared >= _CONTAINED * smaller)
        # A few shared shingles are a common phrase, unless a text has no more.
        yield np.flatnonzero(near & (shared >= np.minimum(_LEAST, smaller)) & (shared > 0)).tolist()


class AskedTexts:
    """The requests of one bench, and what is near to them: any run of eight words, or a shorter whole."""

    def __init__(self, requests: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        for request in requests:
            words = words_of(request)
            for n in range(1, _GRAM + 1):
                self._runs.update(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    def near(self, query: str) -> bool:
        """Tell whether a request shares eight words in a row with one of these, or stands in one whole."""
        words = words_of(query)
        n = min(_GRAM, len(words))
        return any(tuple(words[i : i + n]) in self._runs for i in range(len(words) - n + 1))
