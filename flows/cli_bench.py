"""The commands `skillery bench ...`: benches grown from what is served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows import printing_bench
from flows.options import JsonOption, RootOption, print_json, require_command, root_of
from flows.settings import load_settings

bench_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@bench_app.callback()
def _bench(context: typer.Context) -> None:
    """Grow a bench from what is served, to measure on a corpus of one's own."""
    require_command(context)


@bench_app.command("paging")
def bench_paging(
    skills: Annotated[int, typer.Option("--skills", min=1, help="About how many skills.")],
    out: Annotated[Path, typer.Option("--out", help="A folder; what is there is kept.")],
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write five requests with evidence a skill through an LLM, check every passage, and report."""
    from flows.growing import grow_paging_bench  # noqa: PLC0415

    settings = load_settings()
    found = grow_paging_bench(root_of(settings, root), settings, skills, out)
    print_json(found) if as_json else printing_bench.print_growth(found)


@bench_app.command("distractors")
def bench_distractors(
    documents: Annotated[Path, typer.Option("--documents", help="A root, Parquet or JSON lines of skills.")],
    queries: Annotated[Path, typer.Option("--queries", help="JSON lines {query_id, text}.")],
    qrels: Annotated[Path, typer.Option("--qrels", help="JSON lines {query_id, doc_id, relevance}.")],
    out: Annotated[Path, typer.Option("--out", help="A folder; what is there is kept.")],
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make skills that look relevant to a routing bench's tasks and are not, three a relevant skill."""
    from flows.distracting import grow_distractors  # noqa: PLC0415

    settings = load_settings()
    found = grow_distractors(root_of(settings, root), settings, documents, queries, qrels, out)
    print_json(found) if as_json else printing_bench.print_distractors(found)
