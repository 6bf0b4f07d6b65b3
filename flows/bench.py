"""Benches for the command: methods measured on documents and queries that the user brings."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.progress import progress
from flows.queries import require_page_options
from flows.settings import Settings
from storage.errors import WrongInput
from storage.root import Root
from tasks.evaluate.evidence import read_documents, read_queries
from tasks.evaluate.paging import PagingBench, Remembering, evaluate_bench, prepare_all, require_paging
from tasks.evaluate.paging_picture import draw_paging
from tasks.evaluate.paging_report import PagingReport, report_paging
from tasks.evaluate.paging_tables import paging_markdown
from tasks.models.encoder import OnnxEncoder
from tasks.models.export import exported_encoder
from tasks.parse.local import LocalClassifier
from tasks.retrieve.page import METHODS

_METHODS = ("facets", "full", "nodes", "skillpager", "chunks")


def paging_bench(
    root: Root,
    settings: Settings,
    documents: Path,
    queries: Path,
    methods: list[str] | None,
    budgets: list[float] | None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the table of paging methods on a bench; the encoder's export lies below the root.

    With a folder, every method is measured, and budgets are the report's own: the folder gets `paging.md`,
    `paging.parquet` (a row a query and setting) and, where matplotlib is installed, `paging.png`.

    Args:
        root: Where the encoder's export lies.
        settings: Which encoder, and how many threads a query has.
        documents: Lines `{doc_id, content}`.
        queries: Lines of requests with evidence.
        methods: Names of methods, or the one name `all`; None for the more telling ones.
        budgets: As `page` takes them; None for each method's own limit.
        folder: Where the report goes.

    Raises:
        WrongInput: A file, a method, a budget or the folder cannot be used; nothing has been encoded then.
    """
    wanted = list(METHODS) if methods == ["all"] else methods or list(_METHODS)
    limits: list[float | None] = [*budgets] if budgets else [None]
    require_page_options(wanted, limits)
    texts, asked = read_documents(documents), read_queries(queries)
    require_paging(texts, asked, wanted)
    made = None if folder is None else _folder(folder)
    models = exported_encoder(root.folder / "models", settings.encoder, settings.encoder_precision)
    encoder, single = OnnxEncoder(models), OnnxEncoder(models, threads=settings.query_threads)
    with progress("prepared") as report:
        ready = prepare_all(
            texts, asked, encoder=encoder, tokenizer=encoder, classifier=LocalClassifier(), progress=report
        )
    bench = PagingBench(ready, asked, Remembering(single), single)
    with progress("measured") as report:
        if made is None:
            return evaluate_bench(bench, methods=wanted, budgets=limits, progress=report)
        return _written(report_paging(bench, report), made)


def _written(found: PagingReport, folder: Path) -> dict[str, Any]:
    (folder / "paging.md").write_text(paging_markdown(found), "utf-8")
    found.outcomes.write_parquet(folder / "paging.parquet")
    files = ["paging.md", "paging.parquet"]
    try:
        draw_paging(found, folder / "paging.png")
        files.append("paging.png")
    except ModuleNotFoundError as error:
        sys.stderr.write(f"no picture: {error}; install it with: pip install 'skillery[draw]'\n")
    return {
        "methods": found.rows,
        "contests": [asdict(contest) for contest in found.contests],
        "report": [str(folder / name) for name in files],
    }


def _folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"--report {folder} cannot be made ({error}): give a folder"
        raise WrongInput(msg) from error
    return folder
