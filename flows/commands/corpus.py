"""Reports on the corpus, for the command: comparisons, the bench of risks, and the graph of a skill."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from flows.commands.console import folder_at, form_of, put_drawing, write_report
from flows.commands.installing import InstallSettings
from flows.commands.queries import open_index
from flows.settings import Settings, load
from storage.root import Root
from storage.schemas import Finding, RawDocument
from tasks.evaluate.corpus.compare import compare
from tasks.evaluate.corpus.read import load_corpus
from tasks.evaluate.measures.tables import markdown
from tasks.evaluate.risks.bench import (
    read_bench,
    read_sample,
    run_table,
    scan_skills,
    summarise_risks,
    terminal_blocks,
)
from tasks.refine.document import refine_bundles
from tasks.retrieve.graph.graph import graph_of
from tasks.retrieve.graph.svg import graph_file


def compare_corpora(a: str, b: str) -> dict[str, Any]:
    """Compare two corpora by SkillFlow's measures of structure (section 4.3, figure 2).

    Each corpus is a root, a Parquet file or JSON lines, else `WrongInput`. Documents without text are only
    counted.
    """
    corpus_a, corpus_b = load_corpus(a), load_corpus(b)
    without_text = {"without_text_a": corpus_a.without_text, "without_text_b": corpus_b.without_text}
    return {**compare(corpus_a.measures, corpus_b.measures), **without_text}


def risks_bench(
    bench: Path, *, corpus: Path | None = None, sample: int = 6_000, report: Path | None = None
) -> dict[str, Any]:
    """Measure how many hostile skills of a bench are found, and how many harmless ones are alarmed at.

    The keywords are the options of `skillery evaluate risks`, whose help says what each is; `report` gets
    `risks.md` and `risks.parquet` (the run).

    Returns `summarise_risks`, and with a folder `report`. Raises `WrongInput` if a file is not as it must be.
    """

    def found_in(raw: RawDocument) -> list[Finding]:
        (bundle,) = refine_bundles([raw])
        return [*bundle.text_risks, *bundle.risks]

    refused = load(InstallSettings).refuse
    with tempfile.TemporaryDirectory(prefix="skillery-risks-") as folder:
        rows = scan_skills(read_bench(bench, Path(folder)), found_in, refused)
    drawn = [] if corpus is None else scan_skills(read_sample(corpus, sample), found_in, refused)
    found = summarise_risks(rows, drawn)
    if report is None:
        return found
    at, text = folder_at(report, "--report").folder, markdown(terminal_blocks(found))
    return found | {"report": write_report(at, "risks", text, [run_table([*rows, *drawn])])}


def draw_graph(root: Root, settings: Settings, doc_id: str, out: Path) -> dict[str, Any]:
    """Draw the graph of a served skill to an SVG file, and return what it shows.

    Raises `WrongInput` if `out` has another suffix than `.svg`, or cannot be written, and `UnknownDocument`
    or `Withheld` or `NotPublished` as `ServedIndex.document`.
    """
    form_of(out, ("svg",))
    graph = graph_of(open_index(root, settings).document(doc_id))
    put_drawing(out, graph_file(graph))
    return {"out": str(out), **graph.as_dict()}
