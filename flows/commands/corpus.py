"""Reports on the corpus, for the command: look-alikes, comparisons, the graph of a skill."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flows.commands.console import form_of, put_drawing
from flows.commands.queries import open_index
from flows.settings import Settings
from storage.errors import WrongInput
from storage.lance.served import require_served
from storage.root import Root
from tasks.evaluate.corpus.compare import compare
from tasks.evaluate.corpus.look_alikes import look_alikes
from tasks.evaluate.corpus.read import load_corpus
from tasks.models.protocols import Vectors
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.graph.svg import graph_file

SHOWN = 20


def served_look_alikes(root: Root, threshold: float, out: Path | None) -> dict[str, Any]:
    """Report the served skills whose names and descriptions mean nearly the same.

    Args:
        root: The root that serves them.
        threshold: The cosine similarity from which two skills look alike, in (0, 1], else `WrongInput`.
        out: A Parquet file for all pairs, or None.
    """
    if not 0 < threshold <= 1:
        msg = f"--threshold is {threshold}: choose one above 0 and at most 1"
        raise WrongInput(msg)
    served = require_served(root)
    rows = served.skills_table(root).rows(["doc_id", "name", "vector"], kind=["skill"])
    found = look_alikes(rows["doc_id"].to_pylist(), _matrix(rows["vector"]), threshold=threshold)
    if out is not None:
        found.pairs.write_parquet(out)
    names = dict(zip(rows["doc_id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    return {
        "version": served.version,
        "model": served.model["name"],
        "threshold": threshold,
        "documents": found.documents,
        "pairs": found.pairs.height,
        "truncated": found.truncated,
        "groups": len(found.groups),
        "documents_in_groups": sum(map(len, found.groups)),
        "largest": [
            {"size": len(g), "name": names[g[0]], "doc_ids": list(g[:SHOWN])} for g in found.groups[:SHOWN]
        ],
        "closest": found.pairs.head(SHOWN).to_dicts(),
    }


def _matrix(column: pa.ChunkedArray) -> Vectors:
    flat = np.asarray(column.combine_chunks().flatten().to_numpy())
    return flat.reshape(len(column), column.type.list_size)


def compare_corpora(a: str, b: str) -> dict[str, Any]:
    """Compare two corpora by SkillFlow's measures of structure (section 4.3, figure 2).

    Each corpus is a root, a Parquet file or JSON lines, else `WrongInput`. Documents without text are only
    counted.
    """
    corpus_a, corpus_b = load_corpus(a), load_corpus(b)
    without_text = {"without_text_a": corpus_a.without_text, "without_text_b": corpus_b.without_text}
    return {**asdict(compare(corpus_a.measures, corpus_b.measures)), **without_text}


def draw_graph(root: Root, settings: Settings, doc_id: str, out: Path) -> dict[str, Any]:
    """Draw the graph of a served skill to an SVG file, and return what it shows.

    Raises:
        WrongInput: `out` has another suffix than `.svg`, or cannot be written.
        UnknownDocument, Withheld, NotPublished: As `ServedIndex.document`.
    """
    form_of(out, ("svg",))
    graph = graph_of(open_index(root, settings).document(doc_id))
    put_drawing(out, graph_file(graph))
    return {"out": str(out), **graph.as_dict()}
