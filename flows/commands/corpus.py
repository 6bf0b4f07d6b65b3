"""Reports on the corpus, for the command: comparisons, and the graph of a skill."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.commands.console import form_of, put_drawing
from flows.commands.queries import open_index
from flows.settings import Settings
from storage.root import Root
from tasks.evaluate.corpus.compare import compare
from tasks.evaluate.corpus.read import load_corpus
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.graph.svg import graph_file


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
