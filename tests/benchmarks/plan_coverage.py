"""How many needed skills the candidates of a plan's steps hold, beside `search` in the same run.

Run by hand: `python tests/benchmarks/plan_coverage.py ROOT QUERIES QRELS COPIES`, files as those of
`evaluate routing`. The candidates of a plan's steps are taken in turns: the first of each step, then the
second of each.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import numpy as np

from storage.lance.served import require_served
from storage.root import Root
from tasks.evaluate.measures.statistics import paired_bootstrap
from tasks.evaluate.routing.data import read_qrels, read_tasks
from tasks.parse.classify.local import LocalClassifier
from tasks.retrieve.compose.compose import ComposeOptions, compose
from tasks.retrieve.served_index import ServedIndex

_K = 10


def _first(ids: Iterable[str], copies: dict[str, str]) -> list[str]:
    """Return the first ten ids, each copy as its original and once."""
    return list(dict.fromkeys(copies.get(one.lower(), one.lower()) for one in ids))[:_K]


def main(root: str, queries: str, qrels: str, copies: str) -> None:
    """Print recall@10 of both, over all tasks and over those that need several skills."""
    where = Root(root)
    index = ServedIndex(where, encoder=require_served(where).model["name"], classifier=LocalClassifier)
    rows = map(json.loads, Path(copies).read_text("utf-8").splitlines())
    folded = {row["copy_id"].lower(): row["doc_id"].lower() for row in rows}
    needed: dict[str, set[str]] = {}
    for qrel in read_qrels(Path(qrels)):
        if qrel.relevance > 0:
            needed.setdefault(qrel.query_id, set()).add(qrel.doc_id.lower())
    found = []
    for task in read_tasks(Path(queries)):
        wanted = needed[task.query_id]
        steps = compose(index, task.text, ComposeOptions(k=4 * _K))["steps"]
        turns = zip_longest(*([c["doc_id"] for c in step["candidates"]] for step in steps))
        planned = _first((one for turn in turns for one in turn if one), folded)
        searched = _first((r["doc_id"] for r in index.search(task.text, 4 * _K)["results"]), folded)
        shares = [len(wanted & set(ids)) / len(wanted) for ids in (planned, searched)]
        found.append((len(wanted), len(steps), *shares))
    values = np.array(found)
    for what, chosen in (("all tasks", values[:, 0] > 0), ("several skills", values[:, 0] > 1)):
        own = values[chosen]
        difference, low, high, _ = paired_bootstrap(own[:, 2].tolist(), own[:, 3].tolist())
        print(
            f"{what}: {len(own)} tasks, {own[:, 1].mean():.1f} steps; recall@10 of plans "
            f"{own[:, 2].mean():.3f}, "
            f"of search {own[:, 3].mean():.3f}, difference {difference:+.3f} [{low:+.3f}, {high:+.3f}]"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
