"""The commands `skillery evaluate ...`: measures of what is served, and of methods on benches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import printing, printing_bench
from flows.options import (
    ClassifierOption,
    JsonOption,
    RerankOption,
    RootOption,
    given_or_wrong,
    print_json,
    require_command,
    root_of,
)
from flows.settings import load_settings

evaluate_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@evaluate_app.callback()
def _evaluate(context: typer.Context) -> None:
    """Measure what is served, or methods on a bench."""
    require_command(context)


@evaluate_app.command("paging")
def evaluate_paging(
    documents: Annotated[Path, typer.Option("--documents", help="JSON lines {doc_id, content}.")],
    queries: Annotated[Path, typer.Option("--queries", help="JSON lines with evidence.")],
    method: Annotated[list[str] | None, typer.Option("--method", help="Repeatable.")] = None,
    budget: Annotated[list[float] | None, typer.Option("--budget", help="Repeatable.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Folder for tables and a picture of all methods.")
    ] = None,
    all_methods: Annotated[bool, typer.Option("--all", help="All methods; goes with --report.")] = False,
    judge: Annotated[
        str, typer.Option("--judge", help="evidence, llm, or both: prints how far they agree.")
    ] = "evidence",
    labels: Annotated[
        Path | None, typer.Option("--labels", help="JSON lines {query_id, method, budget, sufficient}.")
    ] = None,
    probes: Annotated[
        str | None, typer.Option("--probes", help="A root or Parquet file: probe its long documents too.")
    ] = None,
    rerank: RerankOption = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure evidence sufficiency, coverage and token reduction of paging methods on a bench."""
    from flows.bench import PagingWishes, paging_bench  # noqa: PLC0415

    settings = load_settings()
    methods = ["all"] if all_methods else method
    wishes = PagingWishes(documents, queries, methods, budget, report, judge, labels, probes, rerank)
    found = paging_bench(root_of(settings, root), settings, wishes)
    print_json(found) if as_json else printing_bench.print_paging(found)


@evaluate_app.command("routing")
def evaluate_routing(
    corpus: Annotated[Path, typer.Option("--corpus", help="A root, Parquet or JSON lines of skills.")],
    queries: Annotated[Path, typer.Option("--queries", help="JSON lines {query_id, text}.")],
    qrels: Annotated[Path, typer.Option("--qrels", help="JSON lines {query_id, doc_id, relevance}.")],
    documents: Annotated[
        list[Path] | None, typer.Option("--documents", help="More skills, as --corpus; repeatable.")
    ] = None,
    copies: Annotated[Path | None, typer.Option("--copies", help="JSON lines {copy_id, doc_id}.")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", help="Repeatable.")] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="The measured method that others are compared with.")
    ] = "zsum",
    report: Annotated[Path | None, typer.Option("--report", help="Folder for tables and a picture.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how well methods rank the skills that tasks need, copies folded and not, and how fast."""
    from flows.printing_routing import print_routing  # noqa: PLC0415
    from flows.routing_bench import BenchFiles, routing_bench  # noqa: PLC0415

    settings = load_settings()
    files = BenchFiles(queries, qrels, [corpus, *(documents or [])], copies)
    found = routing_bench(root_of(settings, root), settings, files, method, baseline, report)
    print_json(found) if as_json else print_routing(found)


@evaluate_app.command("nodes")
def evaluate_nodes(
    gold: Annotated[Path, typer.Argument(help="JSON lines of fragments with their node_type.")],
    classifier: ClassifierOption = "local",
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a classifier on labelled fragments: accuracy, F1, confusion, calibration, thresholds."""
    from flows.evaluating_nodes import nodes_bench  # noqa: PLC0415

    settings = load_settings()
    found = nodes_bench(root_of(settings, root), settings, gold, classifier)
    print_json(found) if as_json else printing.print_nodes(found)


@evaluate_app.command("look-alikes")
def evaluate_look_alikes(
    threshold: Annotated[float, typer.Option("--threshold", help="Cosine, above 0, at most 1.")] = 0.95,
    out: Annotated[Path | None, typer.Option("--out", help="Parquet file for all pairs.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report served skills that mean nearly the same in other words; nothing is folded for it."""
    from flows.look_alikes import served_look_alikes  # noqa: PLC0415

    found = served_look_alikes(root_of(load_settings(), root), threshold, out)
    print_json(found) if as_json else printing.print_look_alikes(found)


@evaluate_app.command("corpus")
def evaluate_corpus(
    a: Annotated[str | None, typer.Argument(help="A corpus: a root, a Parquet file or JSON lines.")] = None,
    b: Annotated[str | None, typer.Argument(help="Another, to be compared with it.")] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the structure of two corpora; without them, run the evaluation flow on what is served."""
    if a is not None:
        from flows.comparing import compare_corpora  # noqa: PLC0415

        compared = compare_corpora(a, given_or_wrong(b, "B"))
        print_json(compared) if as_json else printing.print_comparison(compared)
        return
    from flows.run import run_evaluation  # noqa: PLC0415

    found = run_evaluation(root_of(load_settings(), root))
    print_json(found) if as_json else printing.print_evaluation(found)
    raise typer.Exit(1 if found["fallen"] else 0)
