"""The share of hand-typed fragments that our segmentation gives back as nodes, and how well those are typed.

Run by hand: `python tests/benchmarks/gold_nodes.py GOLD.jsonl DOCUMENTS.jsonl`. The documents go through the
pipeline's own tasks with its default classifier, so that each node is typed in the context it has there; the
same classifier types the fragments as the file gives them for comparison.
"""
# ruff: noqa: T201

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")

from flows.commands.classify import classify_file
from flows.settings import load_settings
from storage.root import Root
from storage.schemas import DOCUMENTS, Document, to_frame
from storage.state import documents_table, nodes_table
from tasks.parse.shells import parse_batch, plan_parsing, prepare_encoder

_FRONT_MATTER = re.compile(r"\A---\r?\n.*?^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
# What the annotators saw has no list marks, and no rule below a paragraph.
_MARK = re.compile(r"(?:>\s*)*(?:[-*+•]\s+|\d+[.)]\s+)?(?:\[[ xX]\]\s+)?")
_RULE = re.compile(r"\s+(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})\Z")


def bare(text: str) -> str:
    """Return a fragment's text without list mark, rule below and line breaks."""
    return " ".join(_RULE.sub("", _MARK.sub("", text.strip(), count=1)).split())


def lines(path: str) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def typed_nodes(root: Root, documents: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Return the nodes of documents as the parse flow makes them."""
    now, table = datetime(2026, 1, 1, tzinfo=UTC), documents_table(root)
    bodies = {d["doc_id"]: _FRONT_MATTER.sub("", d["content"], count=1) for d in documents}
    rows = [
        Document(
            doc_id=d,
            source="bench",
            name=d,
            description="",
            body=body,
            body_hash=f"{d} body",
            content_hash="",
            raw_hash="",
            fetched_at=now,
            first_seen_at=now,
        )
        for d, body in bodies.items()
    ]
    table.replace(bodies, to_frame(rows, DOCUMENTS, run_id="bench", schema_version=1))
    encoder = prepare_encoder.fn(root.uri, load_settings().encoder)
    for partitions in plan_parsing.fn(root.uri, encoder, with_vectors=True)["batches"]:
        parse_batch.fn(root.uri, partitions, encoder, with_vectors=True)
    return nodes_table(root).read()


def accuracy(gold: list[dict[str, Any]], found: dict[str, str]) -> str:
    """Return the share of gold rows whose type was found, all and those the annotators were sure of."""
    sure = [row for row in gold if row["agreed_confidence"] == "high"]
    shares = [sum(found[r["id"]] == r["node_type"] for r in rows) / len(rows) for rows in (gold, sure)]
    return f"{shares[0]:.3f} of {len(gold)}, {shares[1]:.3f} of the {len(sure)} sure ones"


def main() -> None:
    """Print the share of fragments found, and both accuracies."""
    gold = lines(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        root, out = Root(Path(scratch) / "root"), Path(scratch) / "typed.jsonl"
        nodes = typed_nodes(root, lines(sys.argv[2]))
        classify_file(root, load_settings(), Path(sys.argv[1]), out, "local")
        alone = {row["id"]: row["node_type"] for row in lines(str(out))}
    own = {(d, bare(text)): kind for d, text, kind in nodes.select("doc_id", "text", "node_type").iter_rows()}
    ours = {g["id"]: own[key] for g in gold if (key := (g["doc_id"], bare(g["text"]))) in own}
    matched = [g for g in gold if g["id"] in ours]
    print(f"typed by {', '.join(nodes['classifier'].unique().sort())}")
    print(f"{len(matched)} of {len(gold)} fragments are nodes: {len(matched) / len(gold):.1%}")
    print(f"others by block: {dict(Counter(g['block'] for g in gold if g['id'] not in ours))}")
    print(f"as our nodes, in our context:   {accuracy(matched, ours)}")
    print(f"the same as the file has them:  {accuracy(matched, alone)}")
    print(f"all as the file has them:       {accuracy(gold, alone)}")


if __name__ == "__main__":
    main()
